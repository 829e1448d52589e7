"""Resize in every mode: along each axis, every result is a weighted sum of a few elements.

Which elements and with what weights is known now. What TVM's own operator computes as ONNX defines
it stays one operator, for which backends have kernels. Extents and the nearest elements are found
in float32, as onnxruntime finds them: 0.7 times 10 is 7 there, and below it in float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.node import (
    Array,
    Node,
    Refused,
    const,
    dtype_of,
    fixed_tensor,
    shape_of,
    vector_shape,
)

_MOST_TAKEN = 4
"""With more elements in a sum it is a product with a matrix."""

_TVM_MODES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")


@dataclass(frozen=True)
class _Axis:
    """One axis that is resized: extents, how far a step goes, and the part that is looked at."""

    index: int
    before: int
    after: int
    scale: float
    begin: float = 0.0
    end: float = 1.0

    @property
    def moves(self) -> bool:
        """Whether anything is done along it: a scale counts that leaves the extent as it was."""
        return (self.before, self.scale, self.begin, self.end) != (self.after, 1.0, 0.0, 1.0)


def _resize(node: Node) -> relax.Expr | None:
    shape, mode = node.shape(0), node.text("mode", "nearest")
    if node.opset < 11 and not node.has(1):
        raise Refused("its scales are missing")
    axes = _axes(node, shape)
    if _is_tvms(node, shape, axes, mode):
        return None
    x, kind = node.operand(0), node.dtype(0)
    if mode != "nearest" and "float" not in kind:
        x = node.emit(op.astype(x, "float32"))
    for axis in axes:
        if axis.moves:
            x = _along(node, x, axis)
    if dtype_of(x) != kind:
        x = node.emit(op.astype(x, kind))
    return node.emit(op.reshape(x, shape_of(x)))


def _is_tvms(node: Node, shape: list[int], axes: list[_Axis], mode: str) -> bool:
    """Whether TVM's own operator does it."""
    resized = [axis for axis in axes if axis.moves]
    if not {axis.index for axis in resized} <= {2, 3} or "float" not in node.dtype(0):
        return False
    if node.opset < 11 or len(shape) != 4:
        return False
    if node.integer("antialias", 0) or node.integer("exclude_outside", 0) or len(axes) != 4:
        return False
    if node.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        return False
    if _walk(node) not in _TVM_MODES:
        return False
    if any(not np.isclose(axis.scale * axis.before, axis.after) for axis in resized):
        return False
    if _walk(node) == "align_corners" and any(axis.after == 1 for axis in axes[2:]):
        return False  # It divides by the last place, which is 0, also along an axis that stays.
    if mode == "nearest":
        return all(_tvm_takes_the_same(node, axis) for axis in resized)
    return all(axis.after > axis.before for axis in resized)


def _tvm_takes_the_same(node: Node, axis: _Axis) -> bool:
    """Whether TVM's nearest elements are these; it multiplies where ONNX divides."""
    near = np.clip(_weights(node, axis, _places(node, axis))[0][:, 0], 0, axis.before - 1)
    kinds: tuple[Any, ...] = (np.float32, np.float64)
    for kind in kinds:  # As precise as a compiler may make it.
        at, ratio = np.arange(axis.after, dtype=kind), kind(axis.before) / kind(axis.after)
        match _walk(node):
            case "align_corners":
                places = kind(axis.before - 1) / kind(axis.after - 1) * at
            case "asymmetric":
                places = ratio * at
            case _:
                places = (at + kind(0.5)) * ratio - kind(0.5)
                if axis.after == 1 and _walk(node) == "pytorch_half_pixel":
                    places = np.zeros(1, kind)
        found = _rounded(_nearest(node, axis), places, {"floor": 1e-5, "ceil": -1e-5})
        if not np.array_equal(np.clip(found, 0, axis.before - 1), near):
            return False
    return True


def _walk(node: Node) -> str:
    usual = "asymmetric" if node.opset < 11 else "half_pixel"
    return node.text("coordinate_transformation_mode", usual)


def _axes(node: Node, shape: list[int]) -> list[_Axis]:
    rank = len(shape)
    chosen = [axis % rank for axis in node.integers("axes", range(rank))]
    old = node.opset < 11
    scales = node.fixed(1, "scales") if old else node.constant(2)
    sizes = None if old else node.constant(3)
    roi = None if old else node.constant(1)
    if scales is not None and not scales.size:
        scales = None
    if sizes is not None and not sizes.size:
        sizes = None
    if scales is None and sizes is None:
        raise Refused("its sizes are computed while the model runs; they have to be constants")
    if _walk(node) != "tf_crop_and_resize":
        roi = None
    elif roi is None or not roi.size:
        raise Refused("its region is computed while the model runs; it has to be a constant")
    found = []
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    ratios = None if sizes is None else [sizes[i] / shape[a] for i, a in enumerate(chosen)]
    for i, axis in enumerate(chosen):
        if ratios is None:
            assert scales is not None
            scale = float(scales[i])
            after = int(np.floor(np.float32(shape[axis]) * np.float32(scale)))
        elif policy == "stretch":
            assert sizes is not None
            scale, after = float(ratios[i]), int(sizes[i])
        else:
            scale = float(min(ratios) if policy == "not_larger" else max(ratios))
            after = int(scale * shape[axis] + 0.5)
        part = (0.0, 1.0) if roi is None else (float(roi[i]), float(roi[len(chosen) + i]))
        found.append(_Axis(axis, shape[axis], after, scale, *part))
    return found


def _places(node: Node, axis: _Axis) -> Array:
    """Where each result lies among the elements."""
    kind: Any = np.float32 if node.text("mode", "nearest") == "nearest" else np.float64
    at: Any = np.arange(axis.after, dtype=kind)
    scale, last = kind(axis.scale), kind(axis.before - 1)
    wide = scale * kind(axis.before)
    wide = kind(axis.after) if np.isclose(wide, axis.after) else wide
    match _walk(node):
        case "half_pixel":
            places = (at + kind(0.5)) / scale - kind(0.5)
        case "half_pixel_symmetric":
            offset = kind(axis.before / 2) * (1 - kind(axis.after) / wide)
            places = offset + (at + 0.5).astype("float64") / np.float64(scale) - 0.5
        case "pytorch_half_pixel":
            places = (at + kind(0.5)) / scale - kind(0.5) if axis.after > 1 else 0 * at
        case "align_corners":
            places = at * last / (wide - 1) if wide != 1 else 0 * at
        case "asymmetric":
            places = at / scale
        case "tf_half_pixel_for_nn":
            places = (at + kind(0.5)) / scale
        case "tf_crop_and_resize" if axis.after == 1:
            places = np.full(1, 0.5 * (axis.begin + axis.end) * last)
        case "tf_crop_and_resize":
            step = (axis.end - axis.begin) * last / (axis.after - 1)
            places = axis.begin * last + at * step
        case other:
            raise Refused(f"the coordinates '{other}' are not in the standard")
    return np.asarray(places, kind)


def _nearest(node: Node, axis: _Axis) -> str:
    """How places are rounded; before opset 11 the standard is silent, and onnxruntime so."""
    if node.opset < 11:
        return "ceil" if axis.scale < 1 else "floor"
    return node.text("nearest_mode", "round_prefer_floor")


_TIES = {"round_prefer_floor": -1e-6, "round_prefer_ceil": 1e-6}
"""What lies so near a half is one that float32 has missed, to onnxruntime as well."""


def _rounded(how: str, places: Array, slack: Mapping[str, float]) -> Array:
    # In float64, where the number before one half, plus one half, is no whole one.
    wide = places.astype("float64") + slack.get(how, 0.0)
    rounded: Array = {
        "round_prefer_floor": np.ceil(wide - 0.5),
        "round_prefer_ceil": np.floor(wide + 0.5),
        "floor": np.floor(wide),
        "ceil": np.ceil(wide),
    }[how]
    return rounded.astype("int64")


def _weights(node: Node, axis: _Axis, places: Array) -> tuple[Array, Array]:
    """Which elements each result is made of, and how much of each: (results, elements)."""
    mode = node.text("mode", "nearest")
    if mode == "nearest":
        near = _rounded(_nearest(node, axis), places, _TIES)
        return near[:, None], np.ones((axis.after, 1))
    if mode not in ("linear", "cubic"):
        raise Refused(f"the mode '{mode}' is not in the standard")
    narrow = min(axis.scale, 1.0) if node.integer("antialias", 0) else 1.0
    reach = int(np.ceil((1 if mode == "linear" else 2) / narrow))
    near = np.floor(places)[:, None].astype("int64") + np.arange(1 - reach, reach + 1)[None, :]
    distance = np.abs(near - places[:, None]) * narrow
    if mode == "linear":
        weights = np.clip(1 - distance, 0, None)
    else:
        weights = _cubic(distance, node.number("cubic_coeff_a", -0.75))
    weights = weights / weights.sum(1, keepdims=True)
    if node.integer("exclude_outside", 0):
        weights = np.where((near < 0) | (near >= axis.before), 0.0, weights)
        weights = weights / weights.sum(1, keepdims=True)
    return near, weights


def _cubic(distance: Array, a: float) -> Array:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
    found: Array = np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
    return found


def _along(node: Node, x: relax.Expr, axis: _Axis) -> relax.Expr:
    emit, kind, shape = node.emit, dtype_of(x), shape_of(x)
    places = _places(node, axis)
    near, weights = _weights(node, axis, places)
    near = np.clip(near, 0, axis.before - 1)
    extents = vector_shape(len(shape), axis.index, axis.after)

    def taken(tap: int) -> relax.Expr:
        return emit(op.take(x, fixed_tensor(near[:, tap].astype("int32")), axis.index))

    if weights.shape[1] == 1:
        result = taken(0)
    elif weights.shape[1] <= _MOST_TAKEN:
        parts = [
            emit(op.multiply(taken(tap), const(weights[:, tap].reshape(extents), kind)))
            for tap in range(weights.shape[1])
        ]
        result = parts[0]
        for part in parts[1:]:
            result = emit(op.add(result, part))
    else:
        matrix = np.zeros((axis.before, axis.after))
        np.add.at(matrix, (near, np.arange(axis.after)[:, None]), weights)
        order = [i for i in range(len(shape)) if i != axis.index]
        turned = emit(op.permute_dims(x, [*order, axis.index]))
        product = emit(op.matmul(turned, const(matrix, kind)))
        back = [*range(axis.index), len(shape) - 1, *range(axis.index, len(shape) - 1)]
        result = emit(op.permute_dims(product, back))
    if _walk(node) != "tf_crop_and_resize":
        return result
    outside = (places < 0) | (places > axis.before - 1)
    if not outside.any():
        return result
    value = const(node.number("extrapolation_value", 0.0), kind)
    return emit(op.where(fixed_tensor(outside.reshape(extents)), value, result))


CONVERTERS = {"Resize": _resize, "Upsample": _resize}
