"""Products of exported programs that TVM's translator takes apart or lacks: attention, and
transposed convolutions of volumes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of

_AS_IT_IS = (torch.ops.aten.expand.default, torch.ops.aten.clone.default)
_BOTH = (torch.ops.aten.bitwise_and.Tensor, torch.ops.aten.logical_and.default)


def _attention(importer: Importer, node: fx.Node) -> relax.Expr:
    """``scaled_dot_product_attention`` of (..., heads, sequence, depth) tensors as one operator.

    Boolean masks become biases of 0 and minus infinity; grouped heads are repeated. Rows that may
    see nothing, as those of what pads a batch on the left, are zero, as in PyTorch.
    """
    query, key, value, mask, scale, causal, grouped = arguments(
        importer, node, "query", "key", "value", "attn_mask", "scale", "is_causal", "enable_gqa"
    )
    shape = shape_of(query)
    sees = None
    if _may_hide_all(importer, node):
        sees = _any_along_the_last(importer, mask)
        mask = importer.emit(op.logical_or(mask, importer.emit(op.logical_not(sees))))
    bias = None if mask is None else _bias(importer, mask, dtype_of(query))
    if grouped:
        times = shape[-3] // shape_of(key)[-3]
        key, value = (importer.emit(op.repeat(x, times, len(shape) - 3)) for x in (key, value))
    beside = np.broadcast_shapes(*(tuple(shape_of(x)[:-2]) for x in (query, key, value)))
    query, key, value = (
        x
        if tuple(shape_of(x)[:-2]) == beside
        else importer.emit(op.broadcast_to(x, [*beside, *shape_of(x)[-2:]]))
        for x in (query, key, value)
    )
    shape = shape_of(query)
    lead = shape[:-3]
    if len(shape) != 4:
        heads = shape[-3] if len(shape) > 2 else 1
        if bias is not None:
            wide = [*shape[:-1], shape_of(key)[-2]]
            bias = importer.emit(op.broadcast_to(bias, wide))
            bias = importer.emit(op.reshape(bias, [math.prod(lead), heads, *wide[-2:]]))
        query, key, value = (
            importer.emit(op.reshape(x, [math.prod(lead), heads, *shape_of(x)[-2:]]))
            for x in (query, key, value)
        )
    elif bias is not None:
        extents = shape_of(bias)
        bias = importer.emit(op.reshape(bias, [1] * (4 - len(extents)) + extents))
    query, key, value = (
        importer.emit(op.permute_dims(x, [0, 2, 1, 3])) for x in (query, key, value)
    )
    result = importer.emit(
        op.nn.attention(query, key, value, bias, scale, "TopLeft" if causal else None)
    )
    result = importer.emit(op.permute_dims(result, [0, 2, 1, 3]))
    if len(shape) != 4:
        result = importer.emit(op.reshape(result, [*shape[:-1], shape_of(result)[-1]]))
    if sees is None:
        return result
    return importer.emit(op.where(sees, result, relax.const(0, dtype_of(result))))


def _may_hide_all(importer: Importer, node: fx.Node) -> bool:
    """Whether a boolean mask that differs from row to row depends on what the network is given.

    One that is the same for all rows hides everything only where a whole sequence is nothing.
    """
    mask = node.kwargs.get("attn_mask", node.args[3] if len(node.args) > 3 else None)
    if not isinstance(mask, fx.Node) or mask.meta["val"].dtype != torch.bool:
        return False
    return importer.depends_on_input(mask) and _differs_by_row(importer, mask)


def _differs_by_row(importer: Importer, mask: fx.Node) -> bool:
    """Whether rows of a mask may see different places, as far as its making tells."""
    value = mask.meta["val"]
    if value.ndim < 2 or value.shape[-2] == 1:
        return False
    if mask.target in _AS_IT_IS:
        return _differs_by_row(importer, mask.all_input_nodes[0])
    if mask.target in _BOTH:
        return any(_differs_by_row(importer, part) for part in mask.all_input_nodes)
    known = None if importer.depends_on_input(mask) else _counted(mask)
    return known is None or not bool((known == known[..., :1, :]).all())


def _counted(
    node: fx.Node, found: dict[fx.Node, torch.Tensor | None] | None = None
) -> torch.Tensor | None:
    """A value that follows from positions alone; None for others."""
    found = {} if found is None else found
    if node not in found:
        values = [_counted(source, found) for source in node.all_input_nodes]
        found[node] = None
        if node.op == "call_function" and not any(value is None for value in values):
            args, keywords = fx.node.map_arg((node.args, node.kwargs), found.__getitem__)
            value = node.target(*args, **keywords)
            found[node] = value if isinstance(value, torch.Tensor) else None
    return found[node]


def _any_along_the_last(importer: Importer, mask: relax.Expr) -> relax.Expr:
    counted = importer.emit(op.astype(mask, "int32"))
    return importer.emit(op.astype(importer.emit(op.max(counted, [-1], True)), "bool"))


def _bias(importer: Importer, mask: relax.Expr, dtype: str) -> relax.Expr:
    if dtype_of(mask) != "bool":
        return mask if dtype_of(mask) == dtype else importer.emit(op.astype(mask, dtype))
    zero, never = (relax.const(np.asarray(v).astype(dtype)) for v in (0.0, -np.inf))
    return importer.emit(op.where(mask, zero, never))


def _volumes_transposed(importer: Importer, node: fx.Node) -> relax.Expr:
    """A transposed convolution of three axes, which TVM's translator lacks."""
    x, weight, bias, stride, padding, dilation, added, groups = arguments(
        *(importer, node, "input", "weight", "bias", "stride", "padding", "dilation"),
        *("output_padding", "groups"),
    )
    result = importer.emit(
        op.nn.conv3d_transpose(
            x,
            weight,
            strides=stride,
            padding=padding,
            output_padding=added,
            dilation=dilation,
            groups=groups,
        )
    )
    if bias is None:
        return result
    shift = importer.emit(op.reshape(bias, (1, -1, 1, 1, 1)))
    return importer.emit(op.add(result, shift))


def _convolution(importer: Any, node: fx.Node) -> relax.Expr:
    x, transposed = arguments(importer, node, "input", "transposed")
    if transposed and len(shape_of(x)) == 5:
        return _volumes_transposed(importer, node)
    return importer._convolution(node)


PRODUCTS: dict[str, Callable[[Any, fx.Node], Any]] = {
    "scaled_dot_product_attention.default": _attention,
    "convolution.default": _convolution,
}
"""By the name that the translator has for an operator."""
