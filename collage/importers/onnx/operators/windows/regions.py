"""Regions of pictures, cut out: TVM's importer moves them, and takes another maximum than ONNX."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx
from tvm.relax import op

from collage.importers.onnx.operators.node import Converter, Node, Refused, const


def _roi_align(node: Node) -> relax.Expr:
    """TVM's importer moves regions by half a pixel before they are scaled; ONNX, behind that."""
    mode = node.text("mode", "avg")
    if mode not in ("avg", "max"):
        raise Refused(f"the mode '{mode}' is not in the standard")
    emit, regions, kind = node.emit, node.operand(1), node.dtype(1)
    usual = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    walk, scale = (
        node.text("coordinate_transformation_mode", usual),
        node.number("spatial_scale", 1),
    )
    if walk not in ("half_pixel", "output_half_pixel"):
        raise Refused(f"the coordinates '{walk}' are not in the standard")
    small = walk == "half_pixel"
    if small:
        regions = emit(op.subtract(regions, const(0.5 / scale, kind)))
    images = emit(op.astype(emit(op.expand_dims(node.operand(2), 1)), kind))
    regions = emit(op.concat([images, regions], 1))
    size = (node.integer("output_height", 1), node.integer("output_width", 1))
    ratio = node.integer("sampling_ratio", 0)
    if mode == "max":
        return _maxima(node, regions, size, scale, ratio, small)
    return emit(
        op.vision.roi_align(
            *(node.operand(0), regions),
            pooled_size=size,
            spatial_scale=scale,
            sample_ratio=ratio,
            aligned=small,
            layout="NCHW",
            mode="avg",
        )
    )


def _maxima(
    node: Node, regions: relax.Expr, size: tuple[int, int], scale: float, ratio: int, small: bool
) -> relax.Expr:
    """The largest of what neighbours of the samples give, each with its weight; not of sums."""

    def program(x: te.Tensor, regions: te.Tensor) -> te.Tensor:
        kind = regions.dtype

        def number(value: float) -> Any:
            return tirx.const(value, kind)

        def along(i: Any, axis: int, part: Any) -> tuple[Any, Any, Any]:
            """Where a part begins, how many samples it has, and how far they are apart."""
            begin = regions[i, 2 - axis] * number(scale)
            length = regions[i, 4 - axis] * number(scale) - begin
            length = length if small else tirx.max(length, number(1))
            share = length / number(size[axis])
            count = tirx.const(ratio, "int32")
            if ratio <= 0:
                count = tirx.max(tirx.ceil(share).astype("int32"), tirx.const(0, "int32"))
            return begin + part.astype(kind) * share, count, share / count.astype(kind)

        def element(i: Any, c: Any, h: Any, w: Any) -> Any:
            walks = [along(i, axis, part) for axis, part in enumerate((h, w))]
            steps = [te.reduce_axis((0, count)) for _, count, _ in walks]
            places = [
                begin + (step.var.astype(kind) + number(0.5)) * apart
                for (begin, _, apart), step in zip(walks, steps, strict=True)
            ]
            return te.max(_sample(x, regions[i, 0], c, places, kind), axis=steps)

        shape = (regions.shape[0], x.shape[1], *size)
        most = te.compute(shape, element, "most")
        # A region without a sample is zero.
        none, zero = tirx.min_value(x.dtype), tirx.const(0, x.dtype)
        return te.compute(
            shape,
            lambda *at: tirx.if_then_else(most(*at) == none, zero, most(*at)),
            "maxima",
        )

    return node.builder.emit_te(
        program, node.operand(0), regions, primfunc_name_hint="maxima_of_regions"
    )


def _sample(x: te.Tensor, image: Any, channel: Any, places: list[Any], kind: str) -> Any:
    """The largest of four neighbours, each with its weight; zero far outside."""
    outside, along = [], []
    for place, extent in zip(places, x.shape[2:], strict=True):
        outside += [place < tirx.const(-1, kind), place > extent.astype(kind)]
        last = extent - 1
        inside = tirx.min(tirx.max(place, tirx.const(0, kind)), last.astype(kind))
        low = tirx.min(tirx.floor(inside).astype("int32"), last)
        share = inside - low.astype(kind)
        along.append([(low, 1 - share), (tirx.min(low + 1, last), share)])
    found = None
    for row, down in along[0]:
        for column, across in along[1]:
            weight = (down * across).astype(x.dtype)
            value = weight * x[image.astype("int32"), channel, row, column]
            found = value if found is None else tirx.max(found, value)
    return tirx.if_then_else(tirx.any(*outside), tirx.const(0, x.dtype), found)


CONVERTERS: dict[str, Converter] = {"RoiAlign": _roi_align}
