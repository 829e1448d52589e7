"""How operators of exported programs pass rows on of which only some are meant."""

from __future__ import annotations

import math
from dataclasses import replace

from torch import fx

from collage.importers.torch.meant import (
    Follow,
    Known,
    Rows,
    UnknownError,
    axis_of,
    same_rows,
    value_of,
)
from collage.importers.torch.placed import PLACED


def elementwise(known: Known, node: fx.Node) -> Rows:
    """Operands are aligned at their last axes.

    Parameters
    ----------
    known : mapping of fx.Node to Rows
        Of what is computed before.
    node : fx.Node
        Computes each element of its own.

    Returns
    -------
    Rows
        Of its result.

    Raises
    ------
    UnknownError
        When operands have rows along several axes, or of several numbers.
    """
    rank = value_of(node).dim()
    given = [one for one in node.all_input_nodes if one in known]
    found = same_rows(
        [Rows(known[x].axis + rank - value_of(x).dim(), known[x].valid) for x in given]
    )
    length = sum(n for _, n in found.valid)
    for other in node.all_input_nodes:
        shape = value_of(other).shape if hasattr(value_of(other), "shape") else ()
        back = rank - found.axis
        # A row that stands for all would take what is none for all.
        if other not in known and len(shape) >= back and shape[-back] not in (1, length):
            raise UnknownError
    return found


def _first(known: Known, node: fx.Node) -> Rows:
    """The rows of the first operand, where no other has any."""
    if any(one in known for one in node.all_input_nodes if one is not node.args[0]):
        raise UnknownError
    return known[node.args[0]]


def _viewed(known: Known, node: fx.Node) -> Rows:
    rows = _first(known, node)
    before, after = list(value_of(node.args[0]).shape), list(value_of(node).shape)
    lead, extent = math.prod(before[: rows.axis]), before[rows.axis]
    for axis, length in enumerate(after):
        if length == extent and math.prod(after[:axis]) == lead:
            return replace(rows, axis=axis)
    raise UnknownError


def _widened(known: Known, node: fx.Node) -> Rows:
    rows = _first(known, node)
    more = value_of(node).dim() - value_of(node.args[0]).dim()
    return Rows(rows.axis + more, rows.valid)


def _permuted(known: Known, node: fx.Node) -> Rows:
    rows = _first(known, node)
    order = [int(one) % value_of(node).dim() for one in node.args[1]]
    return Rows(order.index(rows.axis), rows.valid)


def _swapped(known: Known, node: fx.Node) -> Rows:
    rows = _first(known, node)
    one, two = (axis_of(node, axis) for axis in node.args[1:3])
    return Rows({one: two, two: one}.get(rows.axis, rows.axis), rows.valid)


def _turned(known: Known, node: fx.Node) -> Rows:
    rows = _first(known, node)
    return Rows(value_of(node).dim() - 1 - rows.axis, rows.valid)


def _unsqueezed(known: Known, node: fx.Node) -> Rows:
    rows = _first(known, node)
    return Rows(rows.axis + (axis_of(node, node.args[1]) <= rows.axis), rows.valid)


def _without(known: Known, node: fx.Node) -> Rows:
    """Axes are taken away, or summed over, that are not that of rows."""
    rows = _first(known, node)
    rank = value_of(node.args[0]).dim()
    given = node.args[1] if len(node.args) > 1 else None
    dims = [given] if isinstance(given, int) else given
    if not dims or rows.axis in (gone := {int(one) % rank for one in dims}):
        raise UnknownError
    if value_of(node).dim() == rank:
        return Rows(rows.axis, rows.valid)
    axis = rows.axis - sum(one < rows.axis for one in gone)
    taken = node.target.__name__.startswith(("select", "squeeze"))
    return replace(rows, axis=axis) if taken else Rows(axis, rows.valid)


def _along_another(known: Known, node: fx.Node) -> Rows:
    """Works along one axis, and keeps it."""
    rows = _first(known, node)
    if axis_of(node.args[0], node.args[1] if len(node.args) > 1 else 0) == rows.axis:
        raise UnknownError
    return rows


def _along_last(known: Known, node: fx.Node) -> Rows:
    """Norms along the last axes, and pads, of which each axis has two."""
    rows, padded = _first(known, node), "pad" in node.target.__name__
    if rows.axis >= value_of(node).dim() - len(node.args[1]) // (1 + padded):
        raise UnknownError
    return rows


def _product(known: Known, node: fx.Node) -> Rows:
    """Rows of the first operand."""
    rows = _first(known, node)
    if rows.axis == value_of(node.args[0]).dim() - 1:
        raise UnknownError
    return rows


def _product_and_more(known: Known, node: fx.Node) -> Rows:
    rows = known.get(node.args[1])
    if rows is None or rows.axis != 0 or node.args[0] in known or node.args[2] in known:
        raise UnknownError
    return rows


def _batchwise(known: Known, node: fx.Node) -> Rows:
    """Each sample by itself, of one operand or of several."""
    rows = same_rows([known[one] for one in node.all_input_nodes if one in known])
    if rows.axis != 0 or node.args[0] not in known:
        raise UnknownError
    return rows


def _of_regions(known: Known, node: fx.Node) -> Rows:
    if node.args[0] in known:
        raise UnknownError
    return known[node.args[1]]


def _batches(known: Known, node: fx.Node) -> Rows:
    one, two = (known.get(x) for x in node.args[:2])
    if one is not None and two is None and one.axis == 1:
        return one
    if one is None or one != two or one.axis != 0:
        raise UnknownError
    return one


def _searched(known: Known, node: fx.Node) -> Rows:
    """Values, each in the sorted numbers of its own row or in those of all."""
    sequence, values = node.args[:2]
    given = [known[one] for one in (sequence, values) if one in known]
    rows = same_rows(given)
    own = len(given) == 2 and rows.axis < value_of(values).dim() - 1
    for_all = value_of(sequence).dim() == 1 and sequence not in known
    if node.kwargs.get("sorter") is not None or not (own or for_all):
        raise UnknownError
    return rows


def _joined(known: Known, node: fx.Node) -> Rows:
    tensors = node.args[0]
    axis = axis_of(node, node.args[1] if len(node.args) > 1 else 0)
    given = [known[one] for one in tensors if one in known]
    at = given[0].axis
    if at != axis:
        # What has no rows has as many, all of them meant.
        return same_rows(given)
    if any(one.axis != at for one in given):
        raise UnknownError
    pieces: list[tuple[fx.Node | None, int]] = []
    for one in tensors:
        whole = ((None, int(value_of(one).shape[axis])),)
        pieces += known[one].valid if one in known else whole
    return Rows(axis, tuple(pieces))


def _stacked(known: Known, node: fx.Node) -> Rows:
    rows = same_rows([known[one] for one in node.args[0] if one in known])
    axis = axis_of(node, node.args[1] if len(node.args) > 1 else 0)
    return Rows(rows.axis + (axis <= rows.axis), rows.valid)


def _taken(known: Known, node: fx.Node) -> Rows:
    """One of several tensors, as ``unbind``, ``split`` and ``sort`` have them."""
    source, place = node.args
    sorted_ones = source.target.__name__.startswith(("sort", "topk")) and place == 0
    return replace(known[source], among=()) if sorted_ones else known[source]


def _unbound(known: Known, node: fx.Node) -> Rows:
    rows = _first(known, node)
    axis = axis_of(node.args[0], node.args[1] if len(node.args) > 1 else 0)
    if axis == rows.axis:
        raise UnknownError
    return replace(rows, axis=rows.axis - (axis < rows.axis))


MOVED: dict[str, Follow] = {
    **dict.fromkeys(("clone.default", "_to_copy.default", "alias.default"), _first),
    **dict.fromkeys(("full_like.default", "zeros_like.default", "ones_like.default"), elementwise),
    **dict.fromkeys(
        ("conv1d.default", "conv2d.default", "conv3d.default", "convolution.default",
         "conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input",
         "_native_batch_norm_legit_no_training.default", "batch_norm.default",
         "group_norm.default", "instance_norm.default", "max_pool2d.default",
         "max_pool2d_with_indices.default", "avg_pool2d.default", "adaptive_avg_pool2d.default",
         "_adaptive_avg_pool2d.default", "upsample_nearest2d.vec", "upsample_bilinear2d.vec",
         "scaled_dot_product_attention.default"), _batchwise),
    **dict.fromkeys(("roi_align.default", "roi_pool.default"), _of_regions),
    **dict.fromkeys(("view.default", "reshape.default", "_unsafe_view.default"), _viewed),
    "expand.default": _widened,
    "permute.default": _permuted,
    "transpose.int": _swapped,
    "t.default": _turned,
    "unsqueeze.default": _unsqueezed,
    **dict.fromkeys(
        ("squeeze.dim", "squeeze.dims", "select.int", "sum.dim_IntList", "mean.dim", "amax.default",
         "amin.default", "argmax.default", "any.dim", "prod.dim_int"), _without),
    **dict.fromkeys(
        ("slice.Tensor", "split_with_sizes.default", "split.Tensor", "_softmax.default",
         "softmax.int", "cumsum.default"),
        _along_another),
    "copy.default": elementwise,
    **dict.fromkeys(("constant_pad_nd.default", "pad.default", "layer_norm.default"), _along_last),
    **dict.fromkeys(("linear.default", "mm.default", "mv.default"), _product),
    "addmm.default": _product_and_more,
    "bmm.default": _batches,
    "searchsorted.Tensor": _searched,
    "bucketize.Tensor": _first,
    "cat.default": _joined,
    "stack.default": _stacked,
    "getitem": _taken,
    "unbind.int": _unbound,
    **PLACED,
}  # fmt: skip
"""How operators pass rows on, by the name that the translator has for them."""
