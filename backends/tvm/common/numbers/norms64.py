"""Norms in float64, of which TVM has no tensor program: written out in elementary operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import relax
from tvm.relax import op

from collage.backends.relax.static_shape import tensor_shape
from collage.backends.tvm.common.legalization import Legalization, default_legalization
from collage.backends.tvm.common.numbers.in_float32 import legalize_in_float32


def _layer_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    shape = _shape_in_float64(call)
    if shape is None:
        return legalize_in_float32(builder, call)
    axes = sorted(int(axis) % len(shape) for axis in call.attrs.axes)
    return _written_out(builder, call, shape, axes, axes)


def _instance_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    shape = _shape_in_float64(call)
    if shape is None:
        return legalize_in_float32(builder, call)
    channel, axes = _channel_and_others(call, len(shape))
    return _written_out(builder, call, shape, axes, [channel])


def _group_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    shape = _shape_in_float64(call)
    if shape is None:
        return legalize_in_float32(builder, call)
    channel, axes = _channel_and_others(call, len(shape))
    groups = int(call.attrs.num_groups)
    split = [*shape[:channel], groups, shape[channel] // groups, *shape[channel + 1 :]]
    # Those behind the channels moved on by one; the channels of a group are summed over, too.
    inside = sorted([channel + 1, *(axis + int(axis > channel) for axis in axes)])
    return _written_out(builder, call, split, inside, [channel])


def _shape_in_float64(call: relax.Call) -> tuple[int, ...] | None:
    shape = tensor_shape(call.args[0])
    return shape if str(call.args[0].ty.dtype) == "float64" else None


def _channel_and_others(call: relax.Call, rank: int) -> tuple[int, list[int]]:
    channel = int(call.attrs.channel_axis) % rank
    # In some modules the channels are among the axes, in others not.
    return channel, sorted({int(axis) % rank for axis in call.attrs.axes} - {channel})


def _written_out(
    builder: relax.BlockBuilder,
    call: relax.Call,
    split: Sequence[int],
    inside: Sequence[int],
    scaled: Sequence[int],
) -> relax.Expr:
    """Mean and variance over axes of ``split``; scale and shift along axes of the result."""

    def emit(value: relax.Call) -> relax.Var:
        return builder.emit(default_legalization(builder, builder.normalize(value)))

    def constant(value: float) -> relax.Expr:
        return relax.const(value, "float64")

    x, *factors = call.args
    shape = list(tensor_shape(x) or ())
    x = emit(op.reshape(x, split))
    centred = emit(op.subtract(x, emit(op.mean(x, inside, keepdims=True))))
    variance = emit(op.mean(emit(op.multiply(centred, centred)), inside, keepdims=True))
    deviation = emit(op.sqrt(emit(op.add(variance, constant(float(call.attrs.epsilon))))))
    result = emit(op.reshape(emit(op.divide(centred, deviation)), shape))
    wide = [extent if axis in scaled else 1 for axis, extent in enumerate(shape)]
    gamma, beta = (emit(op.reshape(factor, wide)) for factor in factors)
    return emit(op.add(emit(op.multiply(result, gamma)), beta))


NORMS64: Mapping[str, Legalization] = {
    "relax.nn.layer_norm": _layer_norm,
    "relax.nn.instance_norm": _instance_norm,
    "relax.nn.group_norm": _group_norm,
}
"""By operator name; in other types, TVM's own."""
