"""What the runtime keeps of a partition's weights besides those in the library."""

from __future__ import annotations

import tvm
from tvm import relax

from collage.backends.devices.cpu_flags import cpu_flags_here
from collage.backends.onednn.options import OnednnOptions
from collage.backends.relax.modules.memory_plan import tensor_bytes

_TILED = ("relax.nn.conv2d", "relax.nn.conv3d")

_POINTS, _TAPS = 36, 9
"""Of the largest tiles of ``templates/winograd``, and of the weights that they are made of."""


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
        four times as much of those that may be convolved in tiles, as all of them are.
    """
    total, tiled, packs = 0, 0, "avx512f" in cpu_flags_here()
    tiles = options.winograd and options.precision == "float32"

    def visit(expr: relax.Expr) -> None:
        nonlocal total, tiled, packs
        if isinstance(expr, tvm.ir.GenericConst):
            total += tensor_bytes(expr.ty)
        elif isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            name = str(expr.op.name)
            packs = packs or "conv" in name or "recurrent" in name
            if tiles and _may_be_tiled(expr):
                tiled += tensor_bytes(expr.args[1].ty)

    relax.analysis.post_order_visit(function, visit)
    if not packs:
        return 0.0
    return 1.0 + (_POINTS / _TAPS - 1.0) * tiled / max(total, 1)


def _may_be_tiled(call: relax.Call) -> bool:
    if str(call.op.name) not in _TILED or not isinstance(call.args[1], tvm.ir.GenericConst):
        return False
    attrs = call.attrs
    shape = dict(zip(attrs.kernel_layout, call.args[1].ty.shape, strict=True))
    # Steps from plane to plane of a volume may be of any size.
    steps = [int(step) for step in attrs.strides[-2:]]
    return (int(shape["H"]), int(shape["W"])) == (3, 3) and steps == [1, 1]
