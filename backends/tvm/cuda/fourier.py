"""Products with matrices of Fourier transforms as fast transforms on a GPU.

A product with the matrix for 4096 complex values reads 256 MB of it, and took 16 times what
PyTorch takes for the transform.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import GenericConst

from collage.backends.relax.fourier import roots_of_unity
from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.common.fourier import Transform, factors, recognized
from collage.backends.tvm.common.legalization import default_legalization
from collage.backends.tvm.cuda.functions import Launch, call_kernels
from collage.backends.tvm.cuda.rows.lines import MULTIPROCESSORS, WARP

_DIGITS = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""By how much of itself a number of the matrix is off, where that is more than may be."""

_LEAST_LENGTH = 32
_THREADS, _MOST_THREADS = 128, 512
_LARGEST_WRITTEN = 16
_MOST_SHARED = 220 << 10
"""Bytes, of the 227 KB that a block may have on GPUs for which there are wheels."""

_KINDS = {"complex": "kComplex", "from_real": "kFromReal", "to_real": "kToReal"}


def legalize_product(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A product, as a transform of rows where the right operand is a transform's matrix.

    Parameters
    ----------
    builder, call
        What takes the program, and a ``relax.matmul``.

    Returns
    -------
    relax.Expr
        TVM's own for any other matrix, and for lengths that a block has no memory for.
    """
    found = _transformed(builder, call)
    return default_legalization(builder, call) if found is None else found


def _transformed(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    left, right = call.args
    dtype = str(call.ty.dtype)
    if not isinstance(right, GenericConst) or dtype not in _DIGITS:
        return None
    shape = static_shape(left)
    extents = [int(dim) for dim in right.value.shape]
    same = all(str(arg.ty.dtype) == dtype for arg in call.args)
    if not same or len(extents) != 2 or len(shape) < 2 or not math.prod(shape):
        return None
    if min(extents) < _LEAST_LENGTH or max(extents) > 2 * min(extents) + 4:
        return None
    found = recognized(right.value.numpy().astype(np.float64), _DIGITS[dtype])
    if found is None:
        return None
    launch = _launch(found, math.prod(shape[:-1]))
    if launch.shared_bytes > _MOST_SHARED:
        return None
    operands = [left, relax.const(_table(found))]
    return call_kernels(builder, "fourier", operands, [(static_shape(call), dtype)], [launch])


def _launch(kind: Transform, rows: int) -> Launch:
    radices = radices_of(kind.points)
    own = max(_threads(kind.points, radix) for radix in radices)
    if radices[0] > _LARGEST_WRITTEN:
        # It reads every value as often as there are some: not from where they come.
        radices = (1, *radices)
    together = max(1, min(rows // MULTIPROCESSORS, _THREADS // own))
    threads = min(math.ceil(own * together / WARP) * WARP, _MOST_THREADS)
    parameters = [
        f"collage::{_KINDS[kind.kind]}",
        *map(str, (kind.length, together, threads)),
        *(str(flag).lower() for flag in (kind.inverse, bool(kind.window))),
        *map(str, radices),
    ]
    room = kind.points + kind.points // 16 + 1
    return Launch(
        math.ceil(rows / together),
        threads,
        f"collage::fourier<{', '.join(parameters)}>",
        (0, 1, 2),
        (rows,),
        2 * together * room * 8,
        (kind.scale,),
    )


def _threads(points: int, radix: int) -> int:
    """Of a step: one for each butterfly, or for two opposite frequencies of a large one."""
    parts = points // radix
    return parts if radix <= _LARGEST_WRITTEN else parts * ((radix - 1) // 2 + 1)


def radices_of(points: int) -> Sequence[int]:
    """The factors of a length, small ones together: each is a step, which threads wait for.

    Parameters
    ----------
    points : int
        The length.

    Returns
    -------
    sequence of int
        In the order of the steps.

    Examples
    --------
    >>> radices_of(4096), radices_of(200), radices_of(243), radices_of(1025)
    ((16, 16, 16), (8, 5, 5), (9, 9, 3), (5, 5, 41))
    """
    found = list(factors(points))
    twos = sum({2: 1, 4: 2}.get(radix, 0) for radix in found)
    rest = [radix for radix in found if radix % 2 and radix != 3]
    return (*_powers(2, twos, 4), *_powers(3, found.count(3), 2), *rest)


def _powers(base: int, exponent: int, most: int) -> list[int]:
    """A power as few factors, as even as there are, none of which is above another power."""
    steps = math.ceil(exponent / most)
    return [base ** ((exponent + steps - 1 - step) // steps) for step in range(steps)]


def _table(kind: Transform) -> NDArray[np.float32]:
    """Roots of unity, as many as there are values; behind them the window's weights."""
    roots = roots_of_unity(kind.length, inverse=kind.inverse)
    parts = np.stack([roots.real, roots.imag], -1).reshape(-1)
    return np.concatenate([parts, kind.window]).astype(np.float32)
