"""Importers of operators that only move data."""

from __future__ import annotations

from tvm import relax

from collage.backends.onednn.graph import OpKind, Tensor
from collage.backends.onednn.operators.elementwise import number
from collage.backends.onednn.partition import Importer, handles
from collage.backends.relax.calls.layouts import permutation
from collage.backends.relax.static_shape import static_shape


@handles("reshape", "squeeze", "expand_dims", "flatten", "nn.batch_flatten")
def _reshape(imp: Importer, call: relax.Call) -> Tensor:
    return imp.graph.reshape(imp.tensor(call.args[0]), imp.shape(call))


@handles("permute_dims")
def _permute_dims(imp: Importer, call: relax.Call) -> Tensor:
    return imp.graph.permute(imp.tensor(call.args[0]), permutation(call) or [])


@handles("concat")
def _concat(imp: Importer, call: relax.Call) -> Tensor:
    parts = imp.tensors(call.args[0])
    axis = int(call.attrs.axis or 0) % len(parts[0].shape)
    return imp.graph.add(OpKind.CONCAT, parts, imp.shape(call), [axis])


def _part(imp: Importer, x: Tensor, begin: list[int], shape: tuple[int, ...]) -> Tensor:
    """The piece of a tensor that begins at ``begin``."""
    if shape == x.shape:
        return x
    return imp.graph.add(OpKind.SLICE, [x], shape, begin)


@handles("split")
def _split(imp: Importer, call: relax.Call) -> list[Tensor]:
    x = imp.tensor(call.args[0])
    axis = int(call.attrs.axis) % len(x.shape)
    parts = []
    start = 0
    for field in call.ty.fields:
        shape = static_shape(field)
        begin = [start if i == axis else 0 for i in range(len(shape))]
        parts.append(_part(imp, x, begin, shape))
        start += shape[axis]
    return parts


@handles("strided_slice")
def _strided_slice(imp: Importer, call: relax.Call) -> Tensor:
    x = imp.tensor(call.args[0])
    axes, begins = ([int(number(v)) for v in call.args[i].fields] for i in (1, 2))
    steps = [int(number(v)) for v in call.args[4].fields] if len(call.args) > 4 else []
    if any(step != 1 for step in steps):
        raise imp.error(f"strided_slice with steps {steps}")
    begin = [0] * len(x.shape)
    for axis, start in zip(axes, begins, strict=True):
        extent = x.shape[axis]
        begin[axis] = min(max(start + extent if start < 0 else start, 0), extent)
    return _part(imp, x, begin, imp.shape(call))


@handles("nn.pad")
def _pad(imp: Importer, call: relax.Call) -> Tensor:
    x = imp.tensor(call.args[0])
    if str(call.attrs.pad_mode) != "constant":
        raise imp.error(f"padding is {call.attrs.pad_mode}, not constant")
    widths = [int(width) for width in call.attrs.pad_width]
    return imp.graph.add(OpKind.PAD, [x], imp.shape(call), widths, [float(call.attrs.pad_value)])
