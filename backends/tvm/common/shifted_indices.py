"""Places that are shifted and then wrapped or divided, kept from a rule of TVM's.

Where a tensor of several axes is made flat, TVM simplifies the sum of its indices as one map of
the loops (``IterMapSimplify``). With ``i // w % m`` beside ``(i % w + c) % n`` it pads the loop by
``c`` for the second, and counts the first from there as well: a tensor that is repeated along both
axes, or wrapped around at its borders, is read from the wrong row (apache-tvm 0.27, any device).
A cast, there and back, is nothing that the rule looks into; generated code does not have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

_NARROW = {"int64": "int32", "int32": "int64"}


def guard_shifted_indices(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel whose wrapped and divided indices TVM leaves as they are, where they are shifted.

    Parameters
    ----------
    func : tirx.PrimFunc
        Scheduled or not; no index of it passes 2^31.

    Returns
    -------
    tirx.PrimFunc
        The same loops; itself where nothing can be mistaken.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((2, 3), "float32", name="x")
    >>> wrapped = te.compute((6, 9), lambda i, j: x[i % 2, (j + 1) % 3], name="y")
    >>> func = te.create_prim_func([x, wrapped])
    >>> print(guard_shifted_indices(func).script().splitlines()[-1].strip())
    y[v_i, v_j] = x[v_i % 2, T.Cast("int32", T.Cast("int64", v_j + 1)) % 3]
    """

    def load(expr: TensorLoad) -> Any:
        indices = _guarded(expr.indices)
        return expr if indices is None else tirx.BufferLoad(expr.source, indices)

    def store(stmt: tirx.BufferStore) -> Any:
        indices = _guarded(stmt.indices)
        return stmt if indices is None else tirx.BufferStore(stmt.buffer, stmt.value, indices)

    body = tvm_ffi.structural_map(func.body, [(TensorLoad, load), (tirx.BufferStore, store)])
    return func if body.same_as(func.body) else func.with_body(body)


def _guarded(indices: Sequence[Any]) -> list[Any] | None:
    """The indices of one access, or None where the rule cannot mistake them."""
    divisions: list[Any] = []
    for index in indices:
        tvm_ffi.structural_walk(index, [((tirx.FloorMod, tirx.FloorDiv), divisions.append)])
    if len(divisions) < 2 or not any(map(_is_shifted, divisions)):
        return None
    hide = [(kind, _hidden) for kind in (tirx.FloorMod, tirx.FloorDiv)]
    return [tvm_ffi.structural_map(index, hide) for index in indices]


def _hidden(expr: Any) -> Any:
    if not _is_shifted(expr):
        return expr
    dtype = str(expr.a.ty.dtype)
    return type(expr)(tirx.Cast(dtype, tirx.Cast(_NARROW[dtype], expr.a)), expr.b)


def _is_shifted(expr: Any) -> bool:
    """By what is no multiple of the divisor."""
    if str(expr.a.ty.dtype) not in _NARROW or not isinstance(expr.b, tirx.IntImm):
        return False
    return _constant(expr.a) % int(expr.b) != 0


def _constant(expr: Any) -> int:
    """The constant term of a sum."""
    if isinstance(expr, tirx.IntImm):
        return int(expr)
    if isinstance(expr, tirx.Add):
        return _constant(expr.a) + _constant(expr.b)
    if isinstance(expr, tirx.Sub):
        return _constant(expr.a) - _constant(expr.b)
    return 0
