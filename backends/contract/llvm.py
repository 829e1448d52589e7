"""What LLVM has to be told so that it compiles tensor programs right."""

from __future__ import annotations

import tvm

_OPTIONS = "cl-opt"
_WHOLE_LOOPS = "-interleave-loops:bool=0"


def without_interleaving(target: tvm.target.Target) -> tvm.target.Target:
    """A target whose loops LLVM turns into vectors, but not into several at once.

    LLVM 22.1, which TVM 0.27 has, reads past the end of ``w`` where a loop over ``i`` has
    ``x[i // 8] * w[i % 8]``: with two vectors to a step, the second one goes on in ``w`` where it
    has to begin again. Grouped convolutions that were transposed gave numbers that nobody wrote.

    Parameters
    ----------
    target : tvm.target.Target
        Whatever it compiles for.

    Returns
    -------
    tvm.target.Target
        The same but for LLVM's options, where it compiles by LLVM; the target itself otherwise.

    Examples
    --------
    >>> without_interleaving(tvm.target.Target("llvm")).attrs["cl-opt"]
    ('-interleave-loops:bool=0',)
    """
    given = tuple(map(str, target.attrs.get(_OPTIONS, ())))
    if target.kind.name != "llvm" or _WHOLE_LOOPS in given:
        return target
    return tvm.target.Target({**target.export(), _OPTIONS: [*given, _WHOLE_LOOPS]})
