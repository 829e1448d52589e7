"""The WMMA operations that ``tensor_core`` uses, as TVM's tensor intrinsics.

They are those of ``tvm.s_tir.tensor_intrin.cuda`` under names of our own. That module parses about
seventy programs when it is imported, which takes tens of seconds in every process that compiles;
here the few that are needed are built from their nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import Range

MICRO = 16
"""Rows, columns and depth of one operation."""

DTYPES = ("float16", "bfloat16")
"""Of operands that tensor cores multiply with sums in float32."""

_PREFIX = "collage_wmma"


@dataclass(frozen=True)
class Intrinsics:
    """Names to tensorize with."""

    load_a: str
    load_b: str
    fill: str
    multiply: str
    store: str


def intrinsics(dtype: str, transposed_b: bool, result_scope: str) -> Intrinsics:
    """Names of the operations with sums in float32, registered on first use.

    Parameters
    ----------
    dtype : str
        Of the operands: one of :data:`DTYPES`.
    transposed_b : bool
        Whether ``B``'s tiles are (columns, depth) instead of (depth, columns).
    result_scope : str
        ``shared`` or ``shared.dyn``: where results are stored; operands come from ``shared.dyn``.

    Returns
    -------
    Intrinsics
        Names in TVM's registry of tensor intrinsics.
    """
    suffix = "_t" if transposed_b else ""
    names = Intrinsics(
        load_a=f"{_PREFIX}_{dtype}_load_a",
        load_b=f"{_PREFIX}_{dtype}_load_b{suffix}",
        fill=f"{_PREFIX}_fill",
        multiply=f"{_PREFIX}_{dtype}_multiply{suffix}",
        store=f"{_PREFIX}_store_{result_scope.replace('.', '_')}",
    )
    made: dict[str, Callable[[], Pair]] = {
        names.load_a: lambda: _load(dtype, "a", "row_major"),
        names.load_b: lambda: _load(dtype, "b", "col_major" if transposed_b else "row_major"),
        names.fill: _fill,
        names.multiply: lambda: _multiply(dtype, transposed_b),
        names.store: lambda: _store(result_scope),
    }
    for name, make in made.items():
        if s_tir.TensorIntrin.get(name, allow_missing=True) is None:
            s_tir.TensorIntrin.register(name, *make())
    return names


def _tile(name: str, dtype: str, scope: str, *, strided: bool) -> Any:
    """A 16 x 16 buffer; the implementations know its strides, the descriptions do not."""
    strides = [tirx.Var(f"{name}_s{i}", "int32") for i in (1, 0)] if strided else None
    return tirx.decl_buffer(
        (MICRO, MICRO),
        dtype,
        name=name,
        strides=strides,
        scope=scope,
        data_alignment=64,
        offset_factor=MICRO,
        layout=None,
    )


def _whole(*buffers: Any) -> list[Any]:
    ranges = [Range(0, MICRO), Range(0, MICRO)]
    return [tirx.BufferRegion(buffer, ranges) for buffer in buffers]


def _function(
    buffers: Sequence[Any], reads: Sequence[Any], writes: Sequence[Any], body: Any
) -> tirx.PrimFunc:
    block = s_tir.SBlock([], _whole(*reads), _whole(*writes), "root", body)
    func = tirx.PrimFunc(list(buffers), s_tir.SBlockRealize([], True, block))
    return func.with_attr("s_tir", True)


def _each(kinds: str, make: Any) -> Any:
    """A nest of loops over 16 around one block; ``make`` gives reads, writes and statement."""
    loops = [tirx.Var(f"l{i}", "int32") for i in range(len(kinds))]
    places = [tirx.Var(f"v{i}", "int32") for i in range(len(kinds))]
    iters = [
        tirx.IterVar(
            Range(0, MICRO),
            place,
            tirx.IterVar.DataPar if kind == "S" else tirx.IterVar.CommReduce,
        )
        for kind, place in zip(kinds, places, strict=True)
    ]
    reads, writes, statement = make(*places)
    block = s_tir.SBlock(iters, _points(reads), _points(writes), "element", statement)
    body: Any = s_tir.SBlockRealize(loops, True, block)
    for loop in reversed(loops):
        body = tirx.For(loop, 0, MICRO, tirx.ForKind.SERIAL, body)
    return body


def _points(accesses: Sequence[tuple[Any, tuple[Any, Any]]]) -> list[Any]:
    return [
        tirx.BufferRegion(buffer, [Range.from_min_extent(i, 1) for i in place])
        for buffer, place in accesses
    ]


def _copy(source: Any, target: Any) -> Any:
    return _each(
        "SS",
        lambda i, j: (
            [(source, (i, j))],
            [(target, (i, j))],
            tirx.BufferStore(target, source[i, j], [i, j]),
        ),
    )


def _fragment(buffer: Any) -> Any:
    """Which of its array's fragments a tile is."""
    stride = buffer.strides[0]
    rows, columns = buffer.elem_offset // stride // MICRO, buffer.elem_offset % stride // MICRO
    return rows * (stride // MICRO) + columns


def _call(name: str, *args: Any) -> Any:
    return tirx.Evaluate(tirx.call_intrin("void", f"tirx.{name}", *args))


Pair = tuple[tirx.PrimFunc, tirx.PrimFunc]
"""What an operation means, and how it is written."""


def _load(dtype: str, operand: str, layout: str) -> Pair:
    def make(*, strided: bool) -> tuple[Any, Any]:
        source = _tile("A", dtype, "shared.dyn", strided=strided)
        return source, _tile("C", dtype, f"wmma.matrix_{operand}", strided=strided)

    source, target = make(strided=False)
    meaning = _function([source, target], [source], [target], _copy(source, target))
    source, target = make(strided=True)
    pointer = source.access_ptr("r", ptr_type=dtype)
    place = (MICRO, MICRO, MICRO, _fragment(target))
    body = _call("tvm_load_matrix_sync", target.data, *place, pointer, source.strides[0], layout)
    return meaning, _function([source, target], [source], [target], body)


def _fill() -> Pair:
    target = _tile("C", "float32", "wmma.accumulator", strided=False)
    zero = tirx.const(0, "float32")
    body = _each(
        "SS", lambda i, j: ([], [(target, (i, j))], tirx.BufferStore(target, zero, [i, j]))
    )
    meaning = _function([target], [], [target], body)
    target = _tile("C", "float32", "wmma.accumulator", strided=True)
    place = (MICRO, MICRO, MICRO, _fragment(target))
    body = _call("tvm_fill_fragment", target.data, *place, zero)
    return meaning, _function([target], [], [target], body)


def _store(scope: str) -> Pair:
    def make(*, strided: bool) -> tuple[Any, Any]:
        source = _tile("A", "float32", "wmma.accumulator", strided=strided)
        return source, _tile("C", "float32", scope, strided=strided)

    source, target = make(strided=False)
    meaning = _function([source, target], [source], [target], _copy(source, target))
    source, target = make(strided=True)
    pointer = target.access_ptr("w", ptr_type="float32")
    place = (MICRO, MICRO, MICRO, _fragment(source))
    body = _call(
        "tvm_store_matrix_sync", source.data, *place, pointer, target.strides[0], "row_major"
    )
    return meaning, _function([source, target], [source], [target], body)


def _multiply(dtype: str, transposed_b: bool) -> Pair:
    def make(*, strided: bool) -> tuple[Any, Any, Any]:
        a = _tile("A", dtype, "wmma.matrix_a", strided=strided)
        b = _tile("B", dtype, "wmma.matrix_b", strided=strided)
        return a, b, _tile("C", "float32", "wmma.accumulator", strided=strided)

    a, b, c = make(strided=False)

    def step(i: Any, j: Any, k: Any) -> Any:
        place = (j, k) if transposed_b else (k, j)
        wide = a[i, k].astype("float32") * b[place].astype("float32")
        reads = [(c, (i, j)), (a, (i, k)), (b, place)]
        return reads, [(c, (i, j))], tirx.BufferStore(c, c[i, j] + wide, [i, j])

    meaning = _function([a, b, c], [c, a, b], [c], _each("SSR", step))
    a, b, c = make(strided=True)
    fragments = [part for x in (c, a, b, c) for part in (x.data, _fragment(x))]
    return meaning, _function([a, b, c], [c, a, b], [c], _call("tvm_mma_sync", *fragments))
