"""Regions of pictures cut out on a GPU, with a thread for each value.

TVM's maxima go through all pixels of the picture for each value, and its averages are computed in
float32 of copies.
"""

from __future__ import annotations

import math

from tvm import relax

from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.common.legalization import Legalization
from collage.backends.tvm.cuda.functions import Launch, call_kernels

_THREADS = 256
_TYPES = ("float16", "bfloat16", "float32")


def legalize_region_maxima(otherwise: Legalization) -> Legalization:
    """The legalization of ``relax.vision.roi_pool``, or another one for other types."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        found = _cut_out(builder, call, "region_maxima", [])
        return otherwise(builder, call) if found is None else found

    return legalize


def legalize_region_samples(otherwise: Legalization) -> Legalization:
    """The legalization of ``relax.vision.roi_align``, or another one for other types."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        attrs = call.attrs
        mean = str(attrs.mode) == "avg"
        flags = [str(flag).lower() for flag in (bool(attrs.aligned), mean)]
        ratio = max(int(attrs.sample_ratio), 0)
        found = _cut_out(builder, call, "region_samples", [str(ratio), *flags])
        return otherwise(builder, call) if found is None else found

    return legalize


def _cut_out(
    builder: relax.BlockBuilder, call: relax.Call, function: str, parameters: list[str]
) -> relax.Expr | None:
    types = [str(arg.ty.dtype) for arg in call.args]
    layout, shape = str(call.attrs.layout), static_shape(call)
    known = set(types) <= set(_TYPES) and layout in ("NCHW", "NHWC")
    if not known or str(call.ty.dtype) != types[0] or not math.prod(shape):
        return None
    extents = dict(zip(layout, static_shape(call.args[0]), strict=True))
    made = dict(zip(layout, shape, strict=True))
    sides = [str(each[axis]) for each in (extents, made) for axis in "HW"]
    last = str(layout == "NHWC").lower()
    pictures = f"collage::Pictures<{', '.join([str(extents['C']), *sides, last])}>"
    count = math.prod(shape)
    launch = Launch(
        math.ceil(count / _THREADS),
        _THREADS,
        f"collage::{function}<{', '.join([pictures, *sides, *parameters])}>",
        (0, 1, 2),
        (count,),
        numbers=(float(call.attrs.spatial_scale),),
    )
    return call_kernels(builder, function, call.args, [(shape, types[0])], [launch])
