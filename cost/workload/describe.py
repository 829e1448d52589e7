"""What a workload does in words and in numbers: one line of text, operations, bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import tvm
from tvm import ir, relax

from collage.backends.relax.recurrent import NAME as RECURRENT
from collage.backends.relax.recurrent import Recurrence
from collage.backends.relax.static_shape import leaf_types
from collage.backends.relax.stepped import NAME as STEPPED
from collage.backends.relax.tensor_spec import TensorSpec
from collage.cost.workload.canonical import placeholder_index

_QUIET = {"relax.reshape", "relax.shape_of", "relax.squeeze", "relax.expand_dims"}
_PRODUCTS = ("conv", "matmul", STEPPED)

_BYTES_AT_ONCE = 16
"""Products of 8-bit integers in the time of one of float32, on processors with tiles for them."""


def operator_calls(mod: tvm.IRModule) -> Iterator[ir.Call]:
    """Every operator call of a module's functions, inner ones included, in order."""
    for var in sorted(mod.get_global_vars(), key=lambda var: str(var.name_hint)):
        if isinstance(mod[var], relax.Function):
            yield from calls_of(mod[var])


def composites_of(mod: tvm.IRModule) -> Iterator[relax.Function]:
    """The inner functions of a module's partitions: what a pattern matched, each of them."""
    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            for block in func.body.blocks:
                values = (binding.value for binding in block.bindings)
                yield from (value for value in values if isinstance(value, relax.Function))


def calls_of(func: relax.Function) -> Iterator[ir.Call]:
    """Every operator call of a function, those of inner functions included, in order."""
    for block in func.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Function):
                yield from calls_of(value)
            elif isinstance(value, ir.Call) and isinstance(value.op, ir.Op):
                yield value


_HEAD, _TAIL = 6, 2
"""Operators that are named of a long chain."""


def describe(mod: tvm.IRModule) -> str:
    """For example ``conv2d 1x64x56x56 * 64x64x3x3 + bias + relu``; of many operators, the first and
    the last ones."""
    words = []
    for call in operator_calls(mod):
        name = str(call.op.name).removeprefix("relax.").removeprefix("nn.")
        tensors = [arg for arg in call.args if isinstance(arg.ty, relax.TensorType)]
        shapes = ["x".join(str(int(d)) for d in arg.ty.shape) or "scalar" for arg in tensors]
        if name.startswith(_PRODUCTS):
            words.append(f"{name} {' * '.join(shapes[:2])}")
        elif name == "add" and any(_is_constant(arg) for arg in tensors):
            words.append("bias" if words else f"add constant {shapes[0]}")
        elif name == "call_tir":
            words.append(str(call.args[0].name_hint))
        else:
            words.append(name if words else f"{name} {shapes[0] if shapes else ''}".strip())
    if len(words) > _HEAD + _TAIL + 1:
        hidden = len(words) - _HEAD - _TAIL
        words = [*words[:_HEAD], f"{hidden} more", *words[-_TAIL:]]
    return " + ".join(words) or "nothing"


def _is_constant(expr: relax.Expr) -> bool:
    return isinstance(expr, ir.GenericConst) or placeholder_index(expr) is not None


_POOLS = ("relax.nn.max_pool", "relax.nn.avg_pool")
"""Each result of theirs has read a window of one size; those of regions and adaptive ones vary."""


def count_flops(mod: tvm.IRModule) -> int:
    """Floating-point operations of one call, a multiply-add as two; other operators count one per
    element that they read or write, whichever is more."""
    return sum(call_flops(call) for call in operator_calls(mod))


def call_flops(call: ir.Call) -> int:
    """Floating-point operations of one operator call."""
    name = str(call.op.name)
    if name in _QUIET:
        return 0
    out = _size(call.ty)
    if name.startswith("relax.nn.conv"):
        # Each output (for a transposed convolution: each input) meets one filter's kernel.
        weight = TensorSpec.of(call.args[1].ty)
        if "transpose" in name:
            filters = str(call.attrs.kernel_layout).index("I")
            return 2 * _size(call.args[0].ty) * weight.size // weight.shape[filters]
        filters = str(call.attrs.kernel_layout).index("O")
        return 2 * out * weight.size // weight.shape[filters]
    if name == RECURRENT:
        return 2 * Recurrence.of(call).products
    if name == STEPPED:
        return max(out, 2 * out * int(call.args[0].ty.shape[-1]) // _BYTES_AT_ONCE)
    if name == "relax.matmul":
        return 2 * out * int(call.args[0].ty.shape[-1])
    if name.startswith("relax.nn.attention"):
        # Queries meet every key, and the scores every value: (batch, length, heads, width) tensors.
        query, key, value = (TensorSpec.of(arg.ty).shape for arg in call.args[:3])
        return 2 * query[0] * query[1] * query[2] * key[1] * (query[3] + value[3])
    if name.startswith(_POOLS):
        return out * math.prod(int(k) for k in call.attrs.pool_size)
    return max([out, *(_size(arg.ty) for arg in call.args)])


def _size(ty: ir.Type) -> int:
    tensors = [leaf for leaf in leaf_types(ty) if isinstance(leaf, relax.TensorType)]
    return sum(TensorSpec.of(tensor).size for tensor in tensors)
