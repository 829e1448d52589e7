"""Operators of exported programs that TVM's translator lacks, or takes and gets wrong.

A converter is given the importer and the node, and gives what stands for the node's result. Here
are those that belong to none of the families in the files beside this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of
from collage.importers.torch.operators.elementary.arithmetic import as_kind
from collage.importers.torch.operators.elementary.bits import BITS
from collage.importers.torch.operators.elementary.elementwise import ELEMENTWISE
from collage.importers.torch.operators.errors import RefusedError
from collage.importers.torch.operators.linear.distances import DISTANCES
from collage.importers.torch.operators.linear.matrices import MATRICES
from collage.importers.torch.operators.masks import put_where, scattered_where
from collage.importers.torch.operators.norms import NORMS
from collage.importers.torch.operators.order_statistics import ORDER_STATISTICS
from collage.importers.torch.operators.regions import REGIONS
from collage.importers.torch.operators.running import RUNNING
from collage.importers.torch.operators.scatter import SCATTERS
from collage.importers.torch.operators.windows.pads import PADS
from collage.importers.torch.operators.windows.pooling import WINDOWS
from collage.importers.torch.operators.windows.resize import RESIZES
from collage.importers.torch.operators.windows.sampling import SAMPLED
from collage.importers.torch.operators.windows.walks import WALKS

Converter = Callable[[Importer, fx.Node], Any]


def _extreme(reduce: Callable[..., relax.Expr]) -> Converter:
    def convert(importer: Importer, node: fx.Node) -> relax.Expr:
        x, dims, keep = arguments(importer, node, "self", "dim", "keepdim")
        axes = list(dims) if dims else None
        found = importer.emit(reduce(_as_number(importer, x), axes, bool(keep)))
        return as_kind(importer, found, dtype_of(x))

    return convert


def _as_number(importer: Importer, x: relax.Expr) -> relax.Expr:
    """Truth values as numbers: TVM knows no extremes of them."""
    return importer.emit(op.astype(x, "int8")) if dtype_of(x) == "bool" else x


def _extreme_with_place(
    reduce: Callable[..., relax.Expr], place: Callable[..., relax.Expr]
) -> Converter:
    def convert(importer: Importer, node: fx.Node) -> tuple[relax.Expr, relax.Expr]:
        x, dim, keep = arguments(importer, node, "self", "dim", "keepdim")
        numbers = _as_number(importer, x)
        values = importer.emit(reduce(numbers, dim, bool(keep)))
        found = importer.emit(place(numbers, dim, bool(keep)))
        return as_kind(importer, values, dtype_of(x)), found

    return convert


def _any(importer: Importer, node: fx.Node) -> relax.Expr:
    x, dims, keep = arguments(importer, node, "self", "dim", "keepdim")
    counted = importer.emit(op.astype(importer.emit(op.astype(x, "bool")), "int32"))
    axes = [dims] if isinstance(dims, int) else (list(dims) if dims else None)
    return importer.emit(op.astype(importer.emit(op.max(counted, axes, bool(keep))), "bool"))


def _prod(importer: Importer, node: fx.Node) -> relax.Expr:
    x, dim, keep = arguments(importer, node, "self", "dim", "keepdim")
    return importer.emit(op.prod(x, dim, bool(keep)))


def _index(importer: Importer, node: fx.Node) -> relax.Expr:
    """``x[i, :, j]`` with tensors: their common shape stands where the first of them stood, or in
    front when something lies between them."""
    x, indices = arguments(importer, node, "self", "indices")
    axes = _indexed_axes(indices)
    if len(axes) == 1:
        return importer.emit(op.take(x, _wrapped(importer, x, indices[axes[0]], axes[0]), axes[0]))
    wrapped = [_wrapped(importer, x, indices[axis], axis) for axis in axes]
    moved = importer.emit(op.permute_dims(x, _in_front(axes, len(shape_of(x)))))
    found = importer.emit(op.index_tensor(moved, wrapped))
    rank = len(shape_of(found)) - (len(shape_of(x)) - len(axes))
    return _put_back(importer, found, axes, rank)


def _index_put(importer: Importer, node: fx.Node) -> relax.Expr:
    x, indices, values, accumulate = arguments(
        importer, node, "self", "indices", "values", "accumulate"
    )
    shape, given = shape_of(x), [index for index in indices if index is not None]
    if dtype_of(given[0]) == "bool":
        return put_where(importer, node, x, indices, values, bool(accumulate))
    axes = _indexed_axes(indices)
    wrapped = [_wrapped(importer, x, indices[axis], axis) for axis in axes]
    common = list(torch.broadcast_shapes(*(tuple(shape_of(index)) for index in wrapped)))
    if 0 in common:
        return x
    truth = bool(accumulate) and dtype_of(x) == "bool"
    if truth:
        x, values = (importer.emit(op.astype(each, "int32")) for each in (x, values))
    places = importer.emit(
        op.stack([importer.emit(op.broadcast_to(index, common)) for index in wrapped], len(common))
    )
    order = _in_front(axes, len(shape))
    rest = [shape[axis] for axis in order[len(axes) :]]
    # As the result of indexing would lie, and then with the indexed axes in front.
    lying = common + rest
    if axes == list(range(axes[0], axes[0] + len(axes))):
        lying = [*shape[: axes[0]], *common, *shape[axes[0] + len(axes) :]]
        front = list(range(axes[0], axes[0] + len(common)))
    else:
        front = list(range(len(common)))
    updates = importer.emit(op.broadcast_to(values, lying))
    updates = importer.emit(op.permute_dims(updates, _in_front(front, len(lying))))
    moved = importer.emit(op.permute_dims(x, order))
    reduction = "add" if accumulate else "update"
    written = importer.emit(op.scatter_nd(moved, places, updates, reduction))
    written = importer.emit(op.astype(written, "bool")) if truth else written
    back = sorted(range(len(order)), key=order.__getitem__)
    return importer.emit(op.permute_dims(written, back))


def _indexed_axes(indices: Sequence[Any]) -> list[int]:
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    if any(dtype_of(indices[axis]) == "bool" for axis in axes):
        raise RefusedError("what a mask selects has a shape that depends on data")
    return axes


def _wrapped(importer: Importer, x: relax.Expr, index: relax.Expr, axis: int) -> relax.Expr:
    """Indices below zero count from the end; those of a constant are known."""
    if dtype_of(index) not in ("int64", "bool"):
        # Several indices may be of several types, which TVM does not join.
        index = importer.emit(op.astype(index, "int64"))
    if importer.is_never_negative(index):
        return index
    dtype = dtype_of(index)
    below = importer.emit(op.less(index, relax.const(0, dtype)))
    from_end = importer.emit(op.add(index, relax.const(shape_of(x)[axis], dtype)))
    return importer.emit(op.where(below, from_end, index))


def _in_front(axes: Sequence[int], rank: int) -> list[int]:
    return [*axes, *(axis for axis in range(rank) if axis not in axes)]


def _put_back(importer: Importer, x: relax.Expr, axes: list[int], rank: int) -> relax.Expr:
    if axes[0] == 0 or axes != list(range(axes[0], axes[0] + len(axes))):
        return x
    total = len(shape_of(x))
    order = [*range(rank, rank + axes[0]), *range(rank), *range(rank + axes[0], total)]
    return importer.emit(op.permute_dims(x, order))


def _embedding_bag(importer: Importer, node: fx.Node) -> tuple[Any, ...]:
    """Rows of a table, summed or averaged bag by bag; only the first of four results is made."""
    weight, indices, offsets, mode, per_sample, last, padding = arguments(
        *(importer, node, "weight", "indices", "offsets", "mode", "per_sample_weights"),
        *("include_last_offset", "padding_idx"),
    )
    (count,), width = shape_of(indices), shape_of(weight)[1]
    bags = shape_of(offsets)[0] - int(bool(last))
    rows = importer.emit(op.take(weight, indices, 0))
    left_out = padding is not None and padding >= 0
    if per_sample is not None:
        weighed = importer.emit(op.expand_dims(per_sample, -1))
        rows = importer.emit(op.multiply(rows, weighed))
    length = _even_bags(node, count, bags)
    reduce = {1: op.mean, 2: op.max}.get(mode, op.sum)
    if length and not left_out:
        folded = importer.emit(op.reshape(rows, [bags, length, width]))
        return (importer.emit(reduce(folded, 1)), None, None, None)
    # Row i is in bag b if b bags begin at or before it: rows are added to theirs, or it is one
    # product with zeros and ones.
    dtype, kind = dtype_of(weight), dtype_of(offsets)
    begins = importer.emit(op.strided_slice(offsets, [0], [0], [bags]))
    numbers = importer.emit(op.arange(0, count, 1, kind))
    begun = importer.emit(op.less_equal(importer.emit(op.expand_dims(begins, 1)), numbers))
    counted = importer.emit(op.sum(importer.emit(op.astype(begun, "int32")), 0))
    if mode == 0 and not left_out and count:
        bag = importer.emit(op.subtract(counted, relax.const(1, "int32")))
        places = importer.emit(op.reshape(bag, [count, 1]))
        none = importer.emit(op.zeros([bags, width], dtype))
        return (importer.emit(op.scatter_nd(none, places, rows, "add")), None, None, None)
    names = importer.emit(op.arange(1, bags + 1, 1, "int32"))
    member = importer.emit(op.equal(importer.emit(op.expand_dims(names, 1)), counted))
    if left_out:
        kept = importer.emit(op.not_equal(indices, relax.const(padding, dtype_of(indices))))
        member = importer.emit(op.logical_and(member, kept))
    if mode == 2:
        return (_highest(importer, member, rows, dtype), None, None, None)
    member = importer.emit(op.astype(member, dtype))
    total = importer.emit(op.matmul(member, rows))
    if mode == 1:
        sizes = importer.emit(op.sum(member, 1, True))
        total = importer.emit(op.divide(total, op.maximum(sizes, relax.const(1, dtype))))
    return (total, None, None, None)


def _highest(importer: Importer, member: relax.Expr, rows: relax.Expr, dtype: str) -> relax.Expr:
    """The maxima of each bag's rows; zeros for bags without any."""
    wide = importer.emit(op.expand_dims(member, 2))
    lowest, zero = relax.const(-math.inf, dtype), relax.const(0, dtype)
    mine = importer.emit(op.where(wide, importer.emit(op.expand_dims(rows, 0)), lowest))
    some = importer.emit(op.max(importer.emit(op.astype(wide, "int32")), 1))
    some = importer.emit(op.astype(some, "bool"))
    return importer.emit(op.where(some, importer.emit(op.max(mine, 1)), zero))


def _even_bags(node: fx.Node, count: int, bags: int) -> int | None:
    """The length of every bag, where the offsets were counted up in equal steps."""
    offsets = node.args[2]
    counted = isinstance(offsets, fx.Node) and offsets.target is torch.ops.aten.arange.start_step
    if not counted or not bags or count % bags:
        return None
    begin, _, *step = offsets.args
    length = count // bags
    return length if begin == 0 and (step[0] if step else 1) == length else None


def _joined(importer: Importer, node: fx.Node) -> relax.Expr | None:
    """Of any rank is what PyTorch takes for nothing at all: a row without elements."""
    tensors, dim = arguments(importer, node, "tensors", "dim")
    kept = [x for x in tensors if shape_of(x) != [0]]
    if not kept or len(kept) == len(tensors):
        return None
    return importer.emit(op.concat(kept, int(dim)))


def _counted(importer: Importer, node: fx.Node) -> relax.Expr | None:
    """Numbers in equal steps: TVM counts those right that are whole and rise."""
    start, end, step = arguments(importer, node, "start", "end", "step")
    numbers: list[Any] = [start or 0, end, 1 if step is None else step]
    if not all(isinstance(number, int | float) for number in numbers):
        raise RefusedError("how many numbers there are depends on data")
    if all(isinstance(number, int) for number in numbers) and numbers[2] > 0:
        return None
    dtype = node.meta["val"].dtype
    counted = torch.arange(*numbers, dtype=dtype)
    exact = counted.float() if dtype == torch.bfloat16 else counted
    return relax.const(exact.numpy(), str(dtype).removeprefix("torch."))


CONVERTERS: dict[str, Converter] = {
    "amax.default": _extreme(op.max),
    "amin.default": _extreme(op.min),
    "max.default": _extreme(op.max),
    "min.default": _extreme(op.min),
    "max.dim": _extreme_with_place(op.max, op.argmax),
    "min.dim": _extreme_with_place(op.min, op.argmin),
    "any.default": _any,
    "any.dim": _any,
    "any.dims": _any,
    "prod.dim_int": _prod,
    "index.Tensor": _index,
    "index_put.default": _index_put,
    "masked_scatter.default": scattered_where,
    "_embedding_bag.default": _embedding_bag,
    "_embedding_bag_forward_only.default": _embedding_bag,
    "cat.default": _joined,
    "arange.default": _counted,
    "arange.start": _counted,
    "arange.start_step": _counted,
    **PADS,
    **WALKS,
    **BITS,
    **DISTANCES,
    **ELEMENTWISE,
    **MATRICES,
    **NORMS,
    **REGIONS,
    **RESIZES,
    **RUNNING,
    **ORDER_STATISTICS,
    **SAMPLED,
    **SCATTERS,
    **WINDOWS,
}
"""By the name that the translator has for an operator."""
