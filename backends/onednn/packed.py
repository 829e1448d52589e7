"""What the runtime keeps of a partition's weights besides those in the library."""

from __future__ import annotations

import math

import tvm
from tvm import relax

from collage.backends.devices.cpu_flags import cpu_flags_here
from collage.backends.onednn.options import OnednnOptions
from collage.backends.relax.modules.memory_plan import tensor_bytes

_AXES = {"relax.nn.conv1d": "W", "relax.nn.conv2d": "HW", "relax.nn.conv3d": "DHW"}

_POINTS = {1: 1, 3: 6, 5: 6}
"""By taps of an axis: points of the largest tiles of ``templates/winograd``."""


def packed_share(function: relax.Function, options: OnednnOptions) -> float:
    """Bytes of packed weights for each byte of a partition's weights.

    Parameters
    ----------
    function : relax.Function
        A partition's.
    options : OnednnOptions
        Say whether there are tiles.

    Returns
    -------
    float
        0 where they are read as they lie: products without AVX-512. 1 where they are packed, and
        as many times as much as tiles have points for each tap where they may be convolved in
        tiles, as all of them are: four times with three by three taps.
    """
    total, tiled, packs = 0, 0.0, "avx512f" in cpu_flags_here()
    tiles = options.winograd and options.precision == "float32"

    def visit(expr: relax.Expr) -> None:
        nonlocal total, tiled, packs
        if isinstance(expr, tvm.ir.GenericConst):
            total += tensor_bytes(expr.ty)
        elif isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            name = str(expr.op.name)
            packs = packs or "conv" in name or "recurrent" in name
            if tiles and (more := _points_of_taps(expr) - 1.0):
                tiled += more * tensor_bytes(expr.args[1].ty)

    relax.analysis.post_order_visit(function, visit)
    if not packs:
        return 0.0
    return 1.0 + tiled / max(total, 1)


def _points_of_taps(call: relax.Call) -> float:
    """Points for each tap of a convolution that may be done in tiles; 1 of others."""
    axes = _AXES.get(str(call.op.name), "")
    if not axes or not isinstance(call.args[1], tvm.ir.GenericConst):
        return 1.0
    layout, shape = str(call.attrs.kernel_layout), call.args[1].ty.shape
    found = {axis: int(shape[layout.index(axis)]) for axis in axes}
    steps = dict(zip(axes, map(int, call.attrs.strides), strict=True))
    tiled = ["H", "W"] if found.get("H", 1) * found["W"] > 1 else ["D"]
    taps = [found.get(axis, 1) for axis in tiled]
    if any(steps.get(axis, 1) != 1 for axis in tiled) or not set(taps) <= set(_POINTS):
        return 1.0
    # There are no tiles with three taps one way and five the other.
    points = math.prod(_POINTS[tap] for tap in taps)
    return points / math.prod(taps) if {3, 5} - set(taps) else 1.0
