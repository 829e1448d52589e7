"""Models that ask whether they are traced: that they do is noted, and they can be told no.

Code of models makes up something where it runs at once, such as a mask that was left out, and goes
on without it where ``torch.compiler.is_compiling()`` says yes.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

_ASKED = ("is_compiling", "is_exporting")
"""Functions of ``torch.compiler``, and names that modules may have imported."""


class Questions:
    """Whether a model asked if it is traced, and what it is told.

    Parameters
    ----------
    told : bool
        Whether it is told what is so; else that it runs at once.

    Examples
    --------
    >>> import torch
    >>> questions = Questions(told=False)
    >>> with questions.heard(torch.nn.ReLU()):
    ...     torch.compiler.is_compiling(), questions.asked
    (False, True)
    """

    def __init__(self, *, told: bool = True) -> None:
        self.told = told
        self.asked = False

    @contextmanager
    def heard(self, module: Any) -> Iterator[None]:
        """What a model asks is heard and answered meanwhile; PyTorch itself is told the truth.

        Parameters
        ----------
        module : torch.nn.Module
            Whose code may have imported the functions by their names.

        Yields
        ------
        None
            Meanwhile.
        """
        import torch

        names = {kind.__module__ for part in module.modules() for kind in type(part).__mro__}
        others = [
            sys.modules[name] for name in names if name in sys.modules and not _is_torch(name)
        ]
        with ExitStack() as stack:
            for name in _ASKED:
                own = getattr(torch.compiler, name)
                new = self._answering(own)
                for place in (torch.compiler, *others):
                    if vars(place).get(name) is own:
                        stack.callback(setattr, place, name, own)
                        setattr(place, name, new)
            yield

    def _answering(self, own: Callable[[], bool]) -> Callable[[], bool]:
        @functools.wraps(own)
        def answer() -> bool:
            if _is_torch(sys._getframe(1).f_globals.get("__name__", "")):
                return own()
            self.asked = True
            return own() and self.told

        return answer


def _is_torch(module: str) -> bool:
    return module.partition(".")[0] == "torch"
