"""How this backend expresses operators as tensor programs where TVM's own way is slow.

Weights that are constants are packed here, at compile time, into the layout that the kernel wants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax
from tvm.ir import GenericConst, Op

from collage.backends.tvm.schedules import Machine, conv2d

Legalization = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]

OP_PATTERN_OUT_FUSABLE = 4
"""``kOutEWiseFusable`` of ``relax::OpPatternKind``: elementwise operators may be fused behind."""


def legalizations(machine: Machine) -> Mapping[str, Legalization]:
    """This backend's legalizations, by operator name."""

    def convolution(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return legalize_conv2d(builder, call, machine)

    return {"relax.nn.conv2d": convolution}


def legalize_conv2d(
    builder: relax.BlockBuilder, call: relax.Call, machine: Machine
) -> relax.Expr:
    """Packed convolution for constant float32 weights; TVM's own for all else."""
    shape = conv_shape(call)
    if shape is None:
        return default_legalization(builder, call)
    data, weights = call.args
    cut = conv2d.plan(shape, machine)
    packed = relax.const(conv2d.pack_weights(weights.value.numpy(), shape, cut.tile))
    return builder.call_te(
        lambda x, w: conv2d.compute(x, w, shape, cut),
        data,
        packed,
        primfunc_name_hint="conv2d",
        primfunc_attrs={"op_pattern": OP_PATTERN_OUT_FUSABLE},
    )


def default_legalization(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """What TVM itself does with the operator."""
    assert isinstance(call.op, Op)
    legalize: Legalization = call.op.get_attr("FLegalize")
    return legalize(builder, call)


def conv_shape(call: relax.Call) -> conv2d.ConvShape | None:
    """The figures of a convolution that the packed kernel takes, else None."""
    data, weights = call.args
    attrs = call.attrs
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout)
    if layouts not in (("NCHW", "OIHW", "NCHW"), ("NCHW", "OIHW", "")):
        return None
    if not isinstance(weights, GenericConst):
        return None
    dims = static_shape(data)
    if dims is None or str(data.ty.dtype) != "float32" or str(call.ty.dtype) != "float32":
        return None
    out, _, kernel_h, kernel_w = (int(v) for v in weights.value.shape)
    padding = [int(v) for v in attrs.padding]
    strides = [int(v) for v in attrs.strides]
    dilation = [int(v) for v in attrs.dilation]
    return conv2d.ConvShape(
        *dims,
        out_channels=out,
        kernel=(kernel_h, kernel_w),
        strides=(strides[0], strides[1]),
        padding=(padding[0], padding[1], padding[2], padding[3]),
        dilation=(dilation[0], dilation[1]),
        groups=int(attrs.groups),
    )


def static_shape(expr: relax.Expr) -> tuple[int, ...] | None:
    """Extents of a tensor, or None where one is not known."""
    shape: Any = expr.ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        return None
    dims = [getattr(dim, "value", None) for dim in shape.values]
    return None if None in dims else tuple(int(dim) for dim in dims if dim is not None)
