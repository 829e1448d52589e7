"""TVM's translation of exported programs, without what it loses: half precision and attention.

TVM's translator asks for float32 results of every product and convolution, so that a program in
half precision does not even type-check, and it takes attention apart into a dozen operators of
which no backend could make its attention kernel again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import tvm
from torch import fx
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from collage.backends.relax.static_shape import static_shape
from collage.rewrite import with_attrs

_ATTENTION = "scaled_dot_product_attention.default"
_HALF = ("float16", "bfloat16")


def translate(program: torch.export.ExportedProgram) -> tvm.IRModule:
    """A Relax module of an exported program, weights bound as constants."""
    table = torch.export.default_decompositions()
    for whole in (
        torch.ops.aten.scaled_dot_product_attention.default,
        # Taken apart it would be a product of two axes between two reshapes.
        torch.ops.aten.linear.default,
    ):
        table.pop(whole, None)
    return _Importer().from_exported_program(
        program.run_decompositions(table),
        keep_params_as_input=False,
        unwrap_unit_return_tuple=True,
        no_bind_return_tuple=False,
        custom_convert_map={_ATTENTION: _attention},
    )


class _Importer(ExportedProgramImporter):
    """TVM's importer with a builder that keeps element types."""

    @property
    def block_builder(self) -> relax.BlockBuilder:
        return self._builder

    @block_builder.setter
    def block_builder(self, builder: relax.BlockBuilder | None) -> None:
        self._builder = None if builder is None else _TypeKeepingBuilder()

    def _convolution(self, node: fx.Node) -> relax.Var:
        """As TVM's, which has no transposed convolution of volumes."""
        x, weights, bias, strides, padding, dilation, transposed, added, groups = (
            self.retrieve_args(node)
        )
        if not transposed or len(x.ty.shape) != 5:
            return super()._convolution(node)
        result = self.block_builder.emit(
            relax.op.nn.conv3d_transpose(
                x,
                weights,
                strides=strides,
                padding=padding,
                output_padding=added,
                dilation=dilation,
                groups=groups,
            )
        )
        if bias is None:
            return result
        shift = self.block_builder.emit(relax.op.reshape(bias, (1, -1, 1, 1, 1)))
        return self.block_builder.emit(relax.op.add(result, shift))


class _TypeKeepingBuilder(relax.BlockBuilder):
    """Products of half-precision operands have half-precision results, as in PyTorch."""

    def emit(self, expr: relax.Expr, name_hint: str = "") -> relax.Var:
        return super().emit(_keep_type(expr), name_hint)


def _keep_type(expr: relax.Expr) -> relax.Expr:
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, tvm.ir.Op):
        return expr
    args = [_keep_type(arg) for arg in expr.args]
    dtype = _dtype(args[0]) if args else ""
    if dtype in _HALF and str(getattr(expr.attrs, "out_dtype", "")) == "float32":
        return with_attrs(expr, *args, out_dtype=dtype)
    if all(new.same_as(old) for new, old in zip(args, expr.args, strict=True)):
        return expr
    return relax.Call(expr.op, args, expr.attrs, expr.ty_args, expr.span)


def _dtype(expr: relax.Expr) -> str:
    return str(expr.ty.dtype) if isinstance(expr.ty, relax.TensorType) else ""


def _attention(node: fx.Node, importer: Any) -> relax.Var:
    """``scaled_dot_product_attention`` of (batch, heads, sequence, depth) tensors, as one operator.

    Boolean masks become biases of 0 and minus infinity.
    """
    emit = importer.block_builder.emit
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    mask, scale = given.get("attn_mask"), given.get("scale")
    tensors = [importer.env[given[name]] for name in names[:3]]
    if any(len(tensor.ty.shape) != 4 for tensor in tensors) or given.get("enable_gqa"):
        return importer._scaled_dot_product_attention(node)
    query, key, value = (emit(relax.op.permute_dims(t, [0, 2, 1, 3])) for t in tensors)
    bias = None if mask is None else importer.env[mask]
    if bias is not None and _dtype(bias) == "bool":
        dtype = _dtype(query)
        zero, never = (relax.const(np.asarray(v).astype(dtype)) for v in (0.0, -np.inf))
        bias = emit(relax.op.where(bias, zero, never))
    if bias is not None and len(bias.ty.shape) < 4:
        shape = static_shape(bias)
        bias = emit(relax.op.reshape(bias, [1] * (4 - len(shape)) + [*shape]))
    causal = "TopLeft" if given.get("is_causal") else None
    result = relax.op.nn.attention(query, key, value, bias, scale, causal)
    return emit(relax.op.permute_dims(emit(result), [0, 2, 1, 3]))
