"""Predicates: what the patterns cannot say, each refusal with its reason."""

from __future__ import annotations

import numpy as np

from collage.backends.contract import Match, Predicate, Verdict
from collage.backends.relax.calls.layouts import data_layout, spatial_rank
from collage.backends.relax.calls.pooling import SPATIAL
from collage.backends.relax.patterns.operator_checks import is_constant, root_call, same_layout
from collage.backends.relax.static_shape import tensor_dtype, tensor_shape


def arg_reduction(match: Match) -> Verdict:
    """TensorRT finds the largest along one of the last four dimensions, of some dtypes."""
    call = root_call(match)
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
    attrs = root_call(match).attrs
    if not attrs.center or not attrs.scale:
        return Verdict.no("without gamma or beta")
    return Verdict.yes()


def even_windows(match: Match) -> Verdict:
    """Adaptive pooling with windows of one size."""
    call = root_call(match)
    verdict = same_layout(call)
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


def quantized(use_int8: bool) -> Predicate:
    """``quantize`` and ``dequantize`` as TensorRT has them: symmetric int8 with constant scales."""

    def check(match: Match) -> Verdict:
        call = root_call(match)
        if not use_int8:
            return Verdict.no("int8 is off; set use_int8")
        scale, zero = match.annotated["arg1"], match.annotated["arg2"]
        if not is_constant(scale) or not is_constant(zero):
            return Verdict.no("scale or zero point is no constant")
        if np.any(np.asarray(zero.value.numpy()) != 0):
            return Verdict.no("the zero point is not 0")
        integers = call if str(call.op.name) == "relax.quantize" else match.annotated["arg0"]
        if tensor_dtype(integers) != "int8":
            return Verdict.no(f"quantizes to {tensor_dtype(integers)}, not int8")
        return Verdict.yes()

    return check
