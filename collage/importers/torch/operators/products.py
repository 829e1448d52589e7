"""Products of exported programs that TVM's translator takes apart or lacks: attention, and
transposed convolutions of volumes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of


def _attention(importer: Importer, node: fx.Node) -> relax.Expr:
    """``scaled_dot_product_attention`` of (..., heads, sequence, depth) tensors as one operator.

    Boolean masks become biases of 0 and minus infinity; grouped heads are repeated.
    """
    query, key, value, mask, scale, causal, grouped = arguments(
        importer, node, "query", "key", "value", "attn_mask", "scale", "is_causal", "enable_gqa"
    )
    shape = shape_of(query)
    bias = None if mask is None else _bias(importer, mask, dtype_of(query))
    lead = shape[:-3]
    if grouped:
        times = shape[-3] // shape_of(key)[-3]
        key, value = (importer.emit(op.repeat(x, times, len(shape) - 3)) for x in (key, value))
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
    if len(shape) == 4:
        return result
    return importer.emit(op.reshape(result, [*shape[:-1], shape_of(result)[-1]]))


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
