"""TVM's ONNX importer with what it gets silently wrong mended or refused.

Every operator's result is bound to a variable that bears the node's name, so that reports can speak
of the model's own layers. All nodes that cannot be converted are collected and named at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from collage.backends.contract.errors import ModelError, last_line
from collage.backends.relax.static_shape import tensor_shape
from collage.importers.onnx.support import node_label

Attributes = dict[str, Any]
Inputs = Sequence[relax.Expr | None]


class _Refused(Exception):
    """A node that TVM's importer would take and get wrong; the message says why."""


class CheckedImporter(ONNXGraphImporter):
    """Converts one graph; :meth:`convert` is the entry."""

    def __init__(self) -> None:
        super().__init__({}, "float32", sanitize=True)
        self._failures: list[str] = []
        self._lost: set[relax.Var] = set()

    def convert(self, model: onnx.ModelProto) -> tvm.IRModule:
        """Import a graph with static input shapes.

        Raises
        ------
        ModelError
            Names every node that cannot be converted, with the reason.
        """
        versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
        for node in model.graph.node:
            node.name = node_label(node)
        try:
            mod = self.from_onnx(model.graph, versions[0] if versions else 1)
        except (ValueError, AssertionError, tvm.error.InternalError, tvm.error.OpError) as err:
            # Raised between operators; with nodes lost, those are the reason.
            self._require_complete()
            raise ModelError(
                f"the graph cannot be imported: {last_line(err)}", value=str(err)
            ) from err
        self._require_complete()
        return mod

    def _require_complete(self) -> None:
        if self._failures:
            raise ModelError(
                "these nodes cannot be imported: " + "; ".join(self._failures),
                value=list(self._failures),
            )

    def _convert_operator(
        self, op_name: str, inputs: Inputs, attrs: Attributes, opset: int
    ) -> relax.Expr:
        name = str(attrs["tvm_custom"]["name"])
        if any(isinstance(x, relax.Var) and x in self._lost for x in inputs):
            return self._placeholder(attrs)
        try:
            check = _CHECKS.get(op_name)
            if check is not None:
                check(inputs, attrs, opset)
            mended = _MENDED.get(op_name)
            found = mended(self.bb, inputs, attrs) if mended is not None else None
            if found is None:
                found = super()._convert_operator(op_name, inputs, attrs, opset)
            return self._named(found, name)
        except Exception as err:  # noqa: BLE001 - converters raise anything; each is reported below
            self._failures.append(f"{name} ({op_name}: {last_line(err)})")
            return self._placeholder(attrs)

    def _named(self, expr: Any, name: str) -> Any:
        if isinstance(expr, relax.Call) and not tvm.ir.is_prim_expr(expr):
            expr = self.bb.normalize(expr)
            if isinstance(expr.ty, relax.TensorType):
                return self.bb.emit(expr, name_hint=name)
        return expr

    def _placeholder(self, attrs: Attributes) -> relax.Expr:
        """Stands for the results of a node that failed, so that the others can still be tried."""
        count = int(attrs["tvm_custom"]["num_outputs"])
        lost = [relax.Var("lost", relax.TensorType(dtype="float32", ndim=-1)) for _ in range(count)]
        self._lost.update(lost)
        return lost[0] if count == 1 else relax.Tuple(lost)


def _text(attrs: Attributes, name: str, default: str) -> str:
    value = attrs.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def _shape(expr: relax.Expr | None) -> tuple[int, ...] | None:
    ty = getattr(expr, "ty", None)
    return None if ty is None else tensor_shape(ty)


def _check_reduction(inputs: Inputs, attrs: Attributes, opset: int) -> None:
    shape = _shape(inputs[0])
    if shape is not None and 0 in shape:
        raise _Refused("a reduction over an empty set")


def _check_resize(inputs: Inputs, attrs: Attributes, opset: int) -> None:
    if attrs.get("antialias", 0):
        raise _Refused("antialias is not supported")
    if _text(attrs, "coordinate_transformation_mode", "half_pixel") == "half_pixel_symmetric":
        raise _Refused("half_pixel_symmetric is not known to TVM")
    mode = _text(attrs, "mode", "nearest")
    scales = _constant(inputs, 2)
    sizes = _constant(inputs, 3)
    shape = _shape(inputs[0])
    if shape is None or (scales is None and sizes is None):
        return
    ratios = scales if sizes is None else np.asarray(sizes) / np.asarray(shape[-len(sizes) :])
    if mode in ("linear", "cubic") and np.any(np.asarray(ratios) < 1):
        raise _Refused(f"{mode} downsampling is computed otherwise by TVM than ONNX defines it")


def _constant(inputs: Inputs, index: int) -> np.ndarray | None:
    expr = inputs[index] if index < len(inputs) else None
    if isinstance(expr, relax.ShapeExpr):
        return np.asarray([int(d) for d in expr.values])
    value = expr.value.numpy() if isinstance(expr, tvm.ir.GenericConst) else None
    return value if value is not None and value.size else None


def _check_lrn(inputs: Inputs, attrs: Attributes, opset: int) -> None:
    if int(attrs["size"]) % 2 == 0:
        raise _Refused("an even window is placed otherwise by TVM than ONNX defines it")


def _depth_to_space(bb: relax.BlockBuilder, inputs: Inputs, attrs: Attributes) -> relax.Expr | None:
    shape = _shape(inputs[0])
    if shape is None:
        return None
    b = int(attrs["blocksize"])
    n, c, h, w = shape
    if _text(attrs, "mode", "DCR") == "CRD":
        split, order = (n, c // (b * b), b, b, h, w), [0, 1, 4, 2, 5, 3]
    else:
        split, order = (n, b, b, c // (b * b), h, w), [0, 3, 4, 1, 5, 2]
    x = bb.emit(relax.op.permute_dims(bb.emit(relax.op.reshape(inputs[0], split)), order))
    return relax.op.reshape(x, (n, c // (b * b), h * b, w * b))


def _space_to_depth(bb: relax.BlockBuilder, inputs: Inputs, attrs: Attributes) -> relax.Expr | None:
    shape = _shape(inputs[0])
    if shape is None:
        return None
    b = int(attrs["blocksize"])
    n, c, h, w = shape
    # In CRD order (from opset 25 on) the channel comes before its place in the block.
    order = [0, 1, 3, 5, 2, 4] if _text(attrs, "mode", "DCR") == "CRD" else [0, 3, 5, 1, 2, 4]
    x = bb.emit(relax.op.reshape(inputs[0], (n, c, h // b, b, w // b, b)))
    return relax.op.reshape(
        bb.emit(relax.op.permute_dims(x, order)), (n, c * b * b, h // b, w // b)
    )


def _check_batch_norm(inputs: Inputs, attrs: Attributes, opset: int) -> None:
    if attrs.get("training_mode", 0):
        raise _Refused("training mode")


def _check_isinf(inputs: Inputs, attrs: Attributes, opset: int) -> None:
    if not (attrs.get("detect_negative", 1) and attrs.get("detect_positive", 1)):
        raise _Refused("one-sided detection is ignored by TVM's importer")


def _check_mod(inputs: Inputs, attrs: Attributes, opset: int) -> None:
    ty = getattr(inputs[0], "ty", None)
    if isinstance(ty, relax.TensorType) and "float" in str(ty.dtype) and not attrs.get("fmod", 0):
        raise _Refused("the floored remainder of floating-point numbers")


def _check_roi_align(inputs: Inputs, attrs: Attributes, opset: int) -> None:
    if _text(attrs, "mode", "avg") != "avg":
        raise _Refused("TVM's maximum is not the one ONNX defines")


def _check_rms_norm(inputs: Inputs, attrs: Attributes, opset: int) -> None:
    shape = _shape(inputs[0])
    if shape is None or int(attrs.get("axis", -1)) % len(shape) == 0:
        raise _Refused("TVM cannot compile a normalization over all axes")


_CHECKS: dict[str, Callable[[Inputs, Attributes, int], None]] = {
    **{
        f"Reduce{kind}": _check_reduction
        for kind in [
            "Max",
            "Min",
            "Sum",
            "Mean",
            "Prod",
            "LogSumExp",
            "LogSum",
            "SumSquare",
            "L1",
            "L2",
        ]
    },
    "ArgMax": _check_reduction,
    "ArgMin": _check_reduction,
    "BatchNormalization": _check_batch_norm,
    "IsInf": _check_isinf,
    "Mod": _check_mod,
    "RoiAlign": _check_roi_align,
    "RMSNormalization": _check_rms_norm,
    "Resize": _check_resize,
    "LRN": _check_lrn,
}


def _conv_transpose(bb: relax.BlockBuilder, inputs: Inputs, attrs: Attributes) -> None:
    """Say by pads which output shape is wanted: TVM's importer does not look at the shape."""
    wanted = [int(extent) for extent in attrs.get("output_shape", ())]
    shape, weights = _shape(inputs[0]), _shape(inputs[1])
    if not wanted or shape is None or weights is None:
        return
    rank = len(shape) - 2
    ones, zeros = [1] * rank, [0] * rank
    strides, dilation = attrs.get("strides", ones), attrs.get("dilations", ones)
    added = [int(more) for more in attrs.get("output_padding", zeros)]
    before, after = [], []
    for axis, extent in enumerate(wanted[-rank:]):
        reach = (weights[axis + 2] - 1) * int(dilation[axis]) + 1
        full = int(strides[axis]) * (shape[axis + 2] - 1) + reach + added[axis]
        total = max(full - extent, 0)
        added[axis] += max(extent - full, 0)
        half = total // 2
        upper = _text(attrs, "auto_pad", "NOTSET") == "SAME_UPPER"
        before.append(half if upper else total - half)
        after.append(total - before[-1])
    attrs.pop("auto_pad", None)
    attrs.pop("output_shape")
    attrs.update(pads=[*before, *after], output_padding=added)


_MENDED: dict[str, Callable[[relax.BlockBuilder, Inputs, Attributes], relax.Expr | None]] = {
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "ConvTranspose": _conv_transpose,
}
