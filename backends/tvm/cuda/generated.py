"""Scheduled kernels, written so that the CUDA which TVM and nvcc make of them says the same.

Three things are lost on the way. TVM's code generator moves several booleans at once as twice as
many bytes as they have (``ushort2`` for two of them), so that masks are read, and written, beside
their places. Of more than four elements of 64 bits it moves at once, as the places beside eight
halves, it has no type, and writes none. And nvcc contracts a product and a sum to one operation
that rounds once: good for sums of values, but a place in a tensor that is computed in floating
point, as the nearest one of a resize, may come out as its neighbour.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Var
from tvm.ir.expr import TensorLoad

from collage.backends.tvm.common.numbers.exact import what_is_cut

_ROUNDED_PRODUCTS = {"float32": "__fmul_rn", "float64": "__dmul_rn"}
"""CUDA's products that nvcc contracts with nothing (CUDA Math API, single and double precision
intrinsics)."""

_MOST_OF_64_BITS = 4
"""Elements that CUDA's vectors have (``longlong4``, ``double4``)."""


def as_generated(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel that means the same to TVM's code generator and to nvcc.

    Parameters
    ----------
    func : tirx.PrimFunc
        Scheduled.

    Returns
    -------
    tirx.PrimFunc
        Vector loops that cannot be written are unrolled, and products that choose a place are
        rounded by themselves; itself where there is neither.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((8,), "float32", name="x")
    >>> func = te.create_prim_func([x, te.compute((8,), lambda i: x[i] + 1)])
    >>> as_generated(func).same_as(func)
    True
    """
    body = tvm_ffi.structural_map(func.body, [(tirx.For, _one_by_one)])
    body = _with_rounded_places(body)
    return func if body.same_as(func.body) else func.with_body(body)


def _one_by_one(loop: tirx.For) -> Any:
    if loop.kind != tirx.ForKind.VECTORIZED or not _has_no_vector(loop):
        return loop
    return tirx.For(
        *(loop.loop_var, loop.min, loop.extent, tirx.ForKind.UNROLLED, loop.body),
        annotations=loop.annotations,
    )


def _has_no_vector(loop: tirx.For) -> bool:
    found: list[bool] = []
    wide = not isinstance(loop.extent, tirx.IntImm) or int(loop.extent) > _MOST_OF_64_BITS

    def note(buffer: Any) -> None:
        kind = str(buffer.dtype)
        found.append(kind == "bool" or (wide and kind.endswith("64")))

    def load(expr: TensorLoad) -> None:
        note(expr.source)

    def store(stmt: tirx.BufferStore) -> None:
        note(stmt.buffer)

    tvm_ffi.structural_walk(loop.body, [(TensorLoad, load), (tirx.BufferStore, store)])
    return any(found)


def _with_rounded_places(body: Any) -> Any:
    """Round the products that places are made of, wherever they stand.

    A resize looks its neighbours up at the floor of a product, and weighs them by what the product
    has beyond its floor: rounded in one and contracted in the other, both are not of one place.
    """
    chosen: set[tvm_ffi.StructuralKey] = set()

    def note(product: tirx.Mul) -> Any:
        if str(product.ty) not in _ROUNDED_PRODUCTS:
            return product
        chosen.add(tvm_ffi.StructuralKey(product))
        return _rounded(product)

    def collect(load: TensorLoad) -> None:
        for place in load.indices:
            if not isinstance(place, Var | tirx.IntImm):
                tvm_ffi.structural_map(place, [(tirx.Mul, note)])

    def rounded(product: tirx.Mul) -> Any:
        if str(product.ty) not in _ROUNDED_PRODUCTS:
            return product
        return _rounded(product) if tvm_ffi.StructuralKey(product) in chosen else product

    tvm_ffi.structural_walk(body, [(TensorLoad, collect)])
    return tvm_ffi.structural_map(body, [(tirx.Mul, rounded)]) if chosen else body


def _rounded(product: tirx.Mul) -> Any:
    dtype = str(product.ty)
    return tirx.call_pure_extern(dtype, _ROUNDED_PRODUCTS[dtype], product.a, product.b)


def with_own_rounding(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel that rounds to bfloat16 by the device's instruction, not by the bits of a float32.

    Before it is scheduled: a chain of functions that is rounded would be read three times, and so
    was kept in memory, in float64 where it was computed in that, for a kernel that only rounds.

    Parameters
    ----------
    func : tirx.PrimFunc
        Unscheduled.

    Returns
    -------
    tirx.PrimFunc
        Itself where nothing is rounded, or no tensor is of that type: TVM includes CUDA's header of
        it for those alone.

    Examples
    --------
    >>> from tvm import te
    >>> from collage.backends.tvm.common.numbers.exact import cut
    >>> x = te.placeholder((8,), "float32", name="x")
    >>> y = te.compute((8,), lambda i: cut(x[i]).astype("bfloat16"))
    >>> "__float2bfloat16_rn" in str(with_own_rounding(te.create_prim_func([x, y])))
    True
    """
    if all(str(getattr(tensor, "dtype", "")) != "bfloat16" for tensor in func.params):
        return func

    def rounded(expr: tirx.Select) -> Any:
        value = what_is_cut(expr)
        if value is None:
            return expr
        # Both are said to be float32: CUDA's own conversions bring them there, if need be.
        nearest = tirx.call_pure_extern("float32", "__float2bfloat16_rn", value)
        return tirx.call_pure_extern("float32", "__bfloat162float", nearest)

    body = tvm_ffi.structural_map(func.body, [(tirx.Select, rounded)], order="post")
    return func if body.same_as(func.body) else func.with_body(body)
