"""Numbers that data choose, as tensors of rank 0.

``x.item()``, and the counters of loops that are whole numbers of Python's, are symbols in an
exported program. Here each is the tensor that it stands for.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from collage.importers.torch.courses.writer import Writer
from collage.importers.torch.nodes import label
from collage.importers.torch.operators.errors import RefusedError

aten = torch.ops.aten

READS = (aten.item.default, aten._local_scalar_dense.default)
"""What takes a number out of a tensor."""

_ARITHMETIC: dict[Any, str] = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.floordiv: "floor_divide",
    operator.mod: "remainder",
    operator.pow: "pow",
    operator.truediv: "true_divide",
    operator.lt: "lt",
    operator.le: "le",
    operator.gt: "gt",
    operator.ge: "ge",
    operator.eq: "eq",
    operator.ne: "ne",
    operator.and_: "bitwise_and",
    operator.or_: "bitwise_or",
    torch.sym_max: "maximum",
    torch.sym_min: "minimum",
}

_OF_TENSORS = {
    "maximum": "default",
    "minimum": "default",
    "floor_divide": "default",
    "pow": "Tensor_Tensor",
    "bitwise_and": "Tensor",
    "bitwise_or": "Tensor",
}
"""Of those that are given no plain numbers, the form for tensors."""

_ROUNDED: dict[Any, str] = {math.floor: "floor", math.ceil: "ceil", math.trunc: "trunc"}

_CHECKS = ("_assert_scalar", "sym_constrain_range", "_assert_tensor_metadata", "_assert_async")
"""What asserts of a number is what PyTorch asks, not the model."""


def is_number(value: Any) -> bool:
    """Whether a value is a number that data choose."""
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def is_check(node: fx.Node) -> bool:
    """Whether a node gives nothing, and only asserts."""
    return str(getattr(node.target, "__name__", node.target)).startswith(_CHECKS)


def reads_numbers(node: fx.Node) -> bool:
    """Whether a node gives such a number, or is given one."""
    return any(is_number(one.meta.get("val")) for one in (node, *node.all_input_nodes))


def as_tensors(writer: Writer, node: fx.Node, env: dict[fx.Node, Any]) -> fx.Node:
    """A node that reads or gives numbers, written with tensors.

    Parameters
    ----------
    writer : Writer
        Gets the nodes.
    node : fx.Node
        Of another graph.
    env : dict of fx.Node to object
        What stands for each of its operands.

    Returns
    -------
    fx.Node
        What stands for its result.

    Raises
    ------
    RefusedError
        When it asks for a number where no tensor can be.
    """
    args = [env[one] if isinstance(one, fx.Node) else one for one in node.args]
    name = getattr(node.target, "__name__", str(node.target))
    if node.target in READS:
        return writer.emit(aten.reshape.default, args[0], [])
    if node.target in _ARITHMETIC:
        return _joined(writer, _ARITHMETIC[node.target], args)
    if node.target is operator.neg:
        return writer.emit(aten.neg.default, *args)
    if node.target is operator.abs:
        return writer.emit(aten.abs.default, *args)
    if node.target in _ROUNDED:
        found = writer.emit(getattr(aten, _ROUNDED[node.target]).default, *args)
        return writer.emit(aten._to_copy.default, found, dtype=torch.int64)
    if node.target is torch.sym_ite:
        both = [one if isinstance(one, fx.Node) else writer.constant(one) for one in args[1:]]
        return writer.emit(aten.where.self, args[0], *both)
    if node.target is torch.sym_sum:
        return _summed(writer, [env.get(one, one) for one in node.args[0]])
    if node.target is torch.sym_not:
        return writer.emit(aten.logical_not.default, *args)
    if node.target in (torch.sym_float, torch.sym_int):
        dtype = torch.float32 if node.target is torch.sym_float else torch.int64
        return writer.emit(aten._to_copy.default, args[0], dtype=dtype)
    wanted = node.meta["val"]
    if name in _WRITTEN:
        return _WRITTEN[name](writer, args, wanted)
    form = _with_tensor(node)
    if form is not None and not node.kwargs:
        found = writer.emit(form, *args)
        if found.meta["val"].dtype == wanted.dtype:
            return found
        return writer.emit(aten._to_copy.default, found, dtype=wanted.dtype)
    raise RefusedError(f"{name} ({label(node)}) is given a number that depends on data")


def _joined(writer: Writer, name: str, args: list[Any]) -> fx.Node:
    """Arithmetic of numbers, of which one at least is a tensor here."""
    if name in _OF_TENSORS:
        args = [one if isinstance(one, fx.Node) else writer.constant(one) for one in args]
    if not isinstance(args[0], fx.Node):
        args = [writer.constant(args[0]), args[1]]
    form = "Tensor" if isinstance(args[1], fx.Node) else "Scalar"
    packet = getattr(aten, name)
    if name in _OF_TENSORS:
        form = _OF_TENSORS[name]
    elif form not in packet.overloads():
        args, form = [args[0], writer.constant(args[1])], "Tensor"
    return writer.emit(getattr(packet, form), *args)


def _summed(writer: Writer, numbers: list[Any]) -> fx.Node:
    """A sum of several, of which one at least is a tensor here."""
    total, *rest = sorted(numbers, key=lambda one: not isinstance(one, fx.Node))
    for one in rest:
        total = _joined(writer, "add", [total, one])
    return total


def _with_tensor(node: fx.Node) -> Any:
    """The form of an operator that takes a tensor where this one takes a number."""
    packet = getattr(node.target, "overloadpacket", None)
    form = getattr(node.target, "_overloadname", "")
    if packet is None or form not in ("Scalar", "Tensor", "Tensor_Scalar"):
        return None
    wanted = "Tensor_Tensor" if form == "Tensor_Scalar" else "Tensor"
    found = getattr(packet, wanted) if wanted in packet.overloads() else None
    # A slice, say, takes a tensor and numbers: of that name there is no other form.
    takes = found is not None and all(
        str(parameter.type) == "Tensor"
        for parameter, given in zip(found._schema.arguments, node.args, strict=False)
        if isinstance(given, fx.Node)
    )
    return found if takes else None


def _row(writer: Writer, args: list[Any], wanted: torch.Tensor) -> fx.Node:
    x, axis, place = args
    place = writer.emit(aten.reshape.default, place, [1])
    place = writer.emit(
        aten.where.self,
        writer.emit(aten.lt.Scalar, place, 0),
        writer.emit(aten.add.Tensor, place, x.meta["val"].shape[axis]),
        place,
    )
    found = writer.emit(aten.index_select.default, x, axis, place)
    return writer.emit(aten.squeeze.dim, found, axis)


def _filled(writer: Writer, args: list[Any], wanted: torch.Tensor) -> fx.Node:
    kind = writer.emit(aten._to_copy.default, args[-1], dtype=wanted.dtype)
    return writer.emit(aten.expand.default, kind, list(wanted.shape))


_WRITTEN: dict[str, Callable[[Writer, list[Any], torch.Tensor], fx.Node]] = {
    "select.int": _row,
    "scalar_tensor.default": _filled,
    "full.default": _filled,
    "full_like.default": _filled,
}
