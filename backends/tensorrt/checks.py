"""Predicates: what the patterns cannot say, each refusal with its reason."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from collage.backends.contract import Match, Predicate, Verdict
from collage.backends.relax.pooling import SPATIAL, PoolPadding, split_padding
from collage.backends.relax.static_shape import tensor_dtype, tensor_shape
from collage.backends.tensorrt.converters.movement import (
    PAD_MODES,
    RESIZE_COORDINATES,
    RESIZE_METHODS,
    RESIZE_ROUNDING,
    permutation_of,
)
from collage.backends.tensorrt.converters.nn import data_layout, spatial_rank


def _root_call(match: Match) -> relax.Call:
    """The operator's call."""
    call = match.annotated["root"]
    assert isinstance(call, relax.Call)
    return call


def _is_constant(expr: relax.Expr) -> bool:
    """Whether an expression is an inline constant."""
    return isinstance(expr, tvm.ir.GenericConst)


def permutation(match: Match) -> Verdict:
    """``layout_transform`` only permutes axes."""
    if permutation_of(_root_call(match)) is None:
        return Verdict.no(f"{_root_call(match).attrs.index_map} does more than permute axes")
    return Verdict.yes()


def padding(match: Match) -> Verdict:
    """``pad`` grows the tensor, in a mode that TensorRT's slices have."""
    attrs = _root_call(match).attrs
    if str(attrs.pad_mode) not in PAD_MODES:
        return Verdict.no(f"padding mode {attrs.pad_mode}; supported: {', '.join(PAD_MODES)}")
    if any(int(width) < 0 for width in attrs.pad_width):
        return Verdict.no(f"negative padding {[int(width) for width in attrs.pad_width]}")
    return Verdict.yes()


def gathered(match: Match) -> Verdict:
    """What is gathered by has integer indices."""
    dtype = tensor_dtype(match.annotated["arg1"])
    if dtype not in ("int32", "int64"):
        return Verdict.no(f"indices of dtype {dtype}")
    return Verdict.yes()


def known_mode(match: Match) -> Verdict:
    """``take`` has indices in bounds, or clips them."""
    mode = str(_root_call(match).attrs.mode)
    if mode not in ("fast", "clip"):
        return Verdict.no(f"mode '{mode}'; supported: fast, clip")
    return Verdict.yes()


def arg_reduction(match: Match) -> Verdict:
    """TensorRT finds the largest along one of the last four dimensions, of some dtypes."""
    call = _root_call(match)
    dtype, shape = tensor_dtype(match.annotated["arg0"]), tensor_shape(match.annotated["arg0"])
    if dtype not in ("float32", "float16", "bfloat16", "int32"):
        return Verdict.no(f"operand of dtype {dtype}")
    if shape is None or not shape:
        return Verdict.no(f"operand of shape {shape}")
    axis = call.attrs.axis
    if axis is not None and int(axis) % len(shape) < len(shape) - 4:
        return Verdict.no(f"axis {axis} of {len(shape)} is not one of the last four")
    return Verdict.yes()


def affine(match: Match) -> Verdict:
    """A norm multiplies by gamma and adds beta; TensorRT's cannot leave them out."""
    attrs = _root_call(match).attrs
    if not attrs.center or not attrs.scale:
        return Verdict.no("without gamma or beta")
    return Verdict.yes()


def inference(match: Match) -> Verdict:
    """``batch_norm`` normalizes with constant statistics."""
    if _root_call(match).attrs.training:
        return Verdict.no("batch_norm in training mode takes its statistics from the batch")
    if not all(_is_constant(match.annotated[f"arg{i}"]) for i in range(1, 5)):
        return Verdict.no("gamma, beta, mean and variance are not all constants")
    return Verdict.yes()


def _same_layout(call: relax.Call) -> Verdict:
    given, result = data_layout(call), str(call.attrs.out_layout or "")
    if sorted(given) != sorted("NC" + SPATIAL[spatial_rank(call)]):
        return Verdict.no(f"layout {given} is blocked")
    if result not in ("", given):
        return Verdict.no(f"changes layout {given} to {result}")
    return Verdict.yes()


def pooling(match: Match) -> Verdict:
    """Windows are dense, and an average counts no place beyond the padding."""
    call = _root_call(match)
    attrs = call.attrs
    verdict = _same_layout(call)
    if not verdict:
        return verdict
    if any(int(step) != 1 for step in attrs.dilation):
        return Verdict.no(f"dilated windows {[int(step) for step in attrs.dilation]}")
    padding = PoolPadding.of(call)
    before, reached = padding.before, [max(width, 0) for width in padding.reached]
    if min([*before, *padding.after]) < 0:
        return Verdict.no(f"negative padding {before}, {padding.after}")
    sizes = [int(size) for size in attrs.pool_size]
    if any(max(a, b) >= size for a, b, size in zip(before, reached, sizes, strict=True)):
        return Verdict.no(f"padding {before}, {reached} is as large as windows of {sizes}")
    average = ".avg_" in str(call.op.name)
    if average and attrs.count_include_pad and padding.exceeded:
        return Verdict.no("a window reaches beyond the padding that its average includes")
    return Verdict.yes()


def even_windows(match: Match) -> Verdict:
    """Adaptive pooling with windows of one size."""
    call = _root_call(match)
    verdict = _same_layout(call)
    if not verdict:
        return verdict
    layout = data_layout(call)
    given, wanted = tensor_shape(match.annotated["arg0"]), tensor_shape(call)
    if given is None or wanted is None:
        return Verdict.no("the shapes are not static")
    spatial = [layout.index(axis) for axis in SPATIAL[spatial_rank(call)]]
    ones = all(wanted[axis] == 1 for axis in spatial)
    if not ones and any(given[axis] % wanted[axis] for axis in spatial):
        return Verdict.no(f"windows of adaptive pooling {given} to {wanted} are uneven")
    return Verdict.yes()


def resizing(match: Match) -> Verdict:
    """``resize2d`` in a mode that TensorRT has exactly."""
    call = _root_call(match)
    attrs = call.attrs
    if not isinstance(match.annotated["arg1"], relax.ShapeExpr):
        return Verdict.no("the size is not known")
    if str(attrs.layout) not in ("NCHW", "NHWC"):
        return Verdict.no(f"layout {attrs.layout}")
    if tensor_dtype(call) != tensor_dtype(match.annotated["arg0"]):
        return Verdict.no("changes the dtype")
    modes = [
        (str(attrs.method), RESIZE_METHODS),
        (str(attrs.coordinate_transformation_mode), RESIZE_COORDINATES),
    ]
    if str(attrs.method) == "nearest_neighbor":
        modes.append((str(attrs.rounding_method), RESIZE_ROUNDING))
    for mode, known in modes:
        if mode not in known:
            return Verdict.no(f"mode '{mode}'; supported: {', '.join(known)}")
    return Verdict.yes()


def convolution(use_int8: bool) -> Predicate:
    """Constant weights, a known layout, no negative padding.

    With ``use_int8`` weights may be computed: dequantized, they make an int8 kernel.
    """

    def check(match: Match) -> Verdict:
        call = _root_call(match)
        attrs = call.attrs
        verdict = _same_layout(call)
        if not verdict:
            return verdict
        if not use_int8 and not _is_constant(match.annotated["arg1"]):
            return Verdict.no("the weights are no constant")
        spatial = SPATIAL[spatial_rank(call)]
        if sorted(str(attrs.kernel_layout)) != sorted("OI" + spatial):
            return Verdict.no(f"weights are laid out {attrs.kernel_layout}")
        if any(int(width) < 0 for width in attrs.padding):
            return Verdict.no(f"negative padding {[int(width) for width in attrs.padding]}")
        return same_dtype(match)

    return check


def transposed_convolution(match: Match) -> Verdict:
    """What is added to the end of the output can be taken from the padding there."""
    call = _root_call(match)
    _, after = split_padding(call.attrs.padding, spatial_rank(call))
    more = [int(width) for width in call.attrs.output_padding]
    if any(extra > have for extra, have in zip(more, after, strict=True)):
        return Verdict.no(f"output_padding {more} exceeds the padding {after} at the end")
    return Verdict.yes()


def same_dtype(match: Match) -> Verdict:
    """Operands and result have one dtype."""
    dtypes = {
        tensor_dtype(expr)
        for expr in (_root_call(match), match.annotated["arg0"], match.annotated["arg1"])
    }
    if len(dtypes) > 1:
        return Verdict.no(f"operands and result have dtypes {', '.join(sorted(dtypes))}")
    return Verdict.yes()


def attention(match: Match) -> Verdict:
    """As many heads in the keys as in the queries, no sliding window."""
    call = _root_call(match)
    if call.attrs.window_size is not None:
        return Verdict.no(f"a sliding window of {call.attrs.window_size}")
    heads = {(tensor_shape(match.annotated[f"arg{i}"]) or (0, 0, 0))[2] for i in range(3)}
    if len(heads) > 1:
        return Verdict.no(f"queries, keys and values have {sorted(heads)} heads")
    if "arg3" in match.annotated and len(tensor_shape(match.annotated["arg3"]) or ()) != 4:
        return Verdict.no("the bias has not four dimensions")
    return Verdict.yes()


def quantized(use_int8: bool) -> Predicate:
    """``quantize`` and ``dequantize`` as TensorRT has them: symmetric int8 with constant scales."""

    def check(match: Match) -> Verdict:
        call = _root_call(match)
        if not use_int8:
            return Verdict.no("int8 is off; set use_int8")
        scale, zero = match.annotated["arg1"], match.annotated["arg2"]
        if not _is_constant(scale) or not _is_constant(zero):
            return Verdict.no("scale or zero point is no constant")
        if np.any(np.asarray(zero.value.numpy()) != 0):
            return Verdict.no("the zero point is not 0")
        integers = call if str(call.op.name) == "relax.quantize" else match.annotated["arg0"]
        if tensor_dtype(integers) != "int8":
            return Verdict.no(f"quantizes to {tensor_dtype(integers)}, not int8")
        return Verdict.yes()

    return check
