"""onnxruntime's operators on pictures: channels last, and crops that are resized."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx
from tvm.relax import op

from collage.importers.onnx.operators.microsoft.optimized import activated, with_bias
from collage.importers.onnx.operators.node import Node, Refused
from collage.importers.onnx.operators.windows.convolution import Window, convolve


def _channels_last(node: Node) -> relax.Expr:
    """A convolution of data and weights with their channels last."""
    data, weight = node.shape(0), node.shape(1)
    rank = len(data)
    first, last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    x, w = (node.emit(op.permute_dims(node.operand(i), first)) for i in range(2))
    window = Window.over(node, data[1:-1], weight[1:-1])
    found = node.emit(op.permute_dims(convolve(node, x, w, window, node.dtype(0)), last))
    return node.emit(op.add(found, node.operand(2))) if node.has(2) else found


def _activated_channels_last(node: Node) -> relax.Expr:
    """Data with their channels last, weights with theirs second, something added, an activation."""
    data, weight, emit = node.shape(0), node.shape(1), node.emit
    rank = len(data)
    first, last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    x = emit(op.permute_dims(node.operand(0), first))
    window = Window.over(node, data[1:-1], weight[2:])
    found = convolve(node, x, node.operand(1), window, node.dtype(0))
    found = with_bias(node, emit(op.permute_dims(found, last)), 2)
    parameters = [float(v) for v in node.attributes.get("activation_params", ())]
    return activated(node, with_bias(node, found, 3), parameters)


def _crops(node: Node) -> relax.Expr:
    """Parts of pictures, each resized to one size: corners lie on corners."""
    mode = node.text("mode", "bilinear")
    if mode not in ("bilinear", "nearest"):
        raise Refused(f"the mode '{mode}' is not in the definition")
    height, width = (int(extent) for extent in node.fixed(3, "size"))
    outside = node.number("extrapolation_value", 0.0)

    def crops(x: te.Tensor, regions: te.Tensor, pictures: te.Tensor) -> te.Tensor:
        extents, kind = [int(extent) for extent in x.shape[2:]], str(x.dtype)

        def place(region: Any, axis: int, step: Any) -> Any:
            low, high = regions[region, axis], regions[region, axis + 2]
            last, count = tirx.const(extents[axis] - 1, kind), (height, width)[axis]
            if count == 1:
                return (low + high) * tirx.const(0.5, kind) * last
            scale = (high - low) * last * tirx.const(1 / (count - 1), kind)
            return low * last + step.astype(kind) * scale

        def element(region: Any, channel: Any, row: Any, column: Any) -> Any:
            places = [place(region, axis, step) for axis, step in enumerate((row, column))]
            zero = tirx.const(0, kind)
            last = [tirx.const(extent - 1, kind) for extent in extents]
            inside = tirx.all(
                *(tirx.all(p >= zero, p <= end) for p, end in zip(places, last, strict=True))
            )
            # Read inside of the picture also where what is read is not wanted.
            held = [tirx.max(zero, tirx.min(p, end)) for p, end in zip(places, last, strict=True)]

            def at(y: Any, x_: Any) -> Any:
                own = [
                    tirx.min(p.astype("int64"), tirx.const(extent - 1, "int64"))
                    for p, extent in zip((y, x_), extents, strict=True)
                ]
                return x[pictures[region], channel, own[0], own[1]]

            if mode == "nearest":
                half = tirx.const(0.5, kind)
                found = at(*(te.floor(p + half) for p in held))
            else:
                low = [te.floor(p) for p in held]
                up = [te.ceil(p) for p in held]
                share = [p - q for p, q in zip(held, low, strict=True)]
                rest = [tirx.const(1, kind) - s for s in share]
                above = at(low[0], low[1]) * rest[1] + at(low[0], up[1]) * share[1]
                below = at(up[0], low[1]) * rest[1] + at(up[0], up[1]) * share[1]
                found = above * rest[0] + below * share[0]
            return tirx.Select(inside, found, tirx.const(outside, kind))

        shape = (regions.shape[0], x.shape[1], height, width)
        return te.compute(shape, element, "crops")

    given = (node.operand(0), node.operand(1), node.operand(2))
    return node.builder.emit_te(crops, *given, primfunc_name_hint="crops")


MICROSOFT = {
    "CropAndResize": _crops,
    "NhwcConv": _channels_last,
    "NhwcFusedConv": _activated_channels_last,
}
