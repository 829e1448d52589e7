"""Operators that do nothing at inference, and the canonical spelling of pure data movement."""

from __future__ import annotations

import numpy as np
from tvm import relax

from collage import rewrite as rw
from collage.backends.relax.static_shape import static_shape
from collage.rewrite import RESHAPES, TUPLE_ITEM, Rules, Scope

_ARITHMETIC = ("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "floor_mod")
_LOGIC = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and")
_BROADCASTING = (*_ARITHMETIC, *_LOGIC, "logical_or", "logical_xor", "where", "mod", "floor_divide")


def _drop_dropout(scope: Scope, item: relax.TupleGetItem) -> relax.Expr | None:
    """``dropout(x)[0]`` is ``x`` at inference."""
    dropout = scope.call(item.tuple_value, "nn.dropout")
    return dropout.args[0] if dropout is not None and item.index == 0 else None


def _drop_same_type(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """A cast or broadcast that changes nothing is its operand."""
    x = call.args[0]
    if not (rw.is_tensor(x) and rw.is_tensor(call)):
        return None
    same = static_shape(x) == static_shape(call) and rw.dtype_of(x) == rw.dtype_of(call)
    return x if same else None


def _one_reshape(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Any chain of reshaping operators becomes one ``reshape``, or nothing."""
    if not rw.is_tensor(call):
        return None
    shape = static_shape(call)
    inner = scope.call(call.args[0], *RESHAPES)
    x = inner.args[0] if inner is not None and rw.is_tensor(inner.args[0]) else call.args[0]
    if static_shape(x) == shape:
        return x
    if 0 in shape:
        return None  # In a reshape's list of extents 0 stands for the one that was there.
    spelled_out = rw.op_name(call) == "reshape"
    return None if spelled_out and x.same_as(call.args[0]) else rw.reshape(x, shape)


def _one_permute(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Chains of ``permute_dims`` become one; one that moves only unit dimensions, a reshape."""
    x = call.args[0]
    if not rw.is_tensor(x):
        return None
    shape = static_shape(x)
    axes = rw.permutation(call)
    inner = scope.call(x, "permute_dims")
    if inner is not None:
        first = rw.permutation(inner)
        return relax.op.permute_dims(inner.args[0], [first[a] for a in axes])
    moved = [a for a in axes if shape[a] != 1]
    if moved == sorted(moved) and 0 not in shape:
        return rw.reshape(x, static_shape(call))
    return relax.op.permute_dims(x, list(axes)) if call.attrs.axes is None else None


def _permute_between_units(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """A permutation between reshapes that insert and drop unit dimensions, as ``einsum`` has it.

    One reshape and the permutation of what is larger do the same, and products see a transposed
    operand in it.
    """
    moved = scope.call(call.args[0], "permute_dims")
    inner = None if moved is None else scope.call(moved.args[0], "reshape")
    if moved is None or inner is None or not (rw.is_tensor(call) and rw.is_tensor(inner.args[0])):
        return None
    x, shape, between = inner.args[0], static_shape(call), static_shape(inner)
    large = [extent for extent in between if extent != 1]
    order = [a for a in rw.permutation(moved) if between[a] != 1]
    if 0 in between or large != [extent for extent in static_shape(x) if extent != 1]:
        return None
    if [between[a] for a in order] != [extent for extent in shape if extent != 1]:
        return None
    units = len(shape) - len(large)
    ranks = {axis: number for number, axis in enumerate(sorted(order))}
    unit, axis = iter(range(units)), iter(order)
    axes = [next(unit) if extent == 1 else units + ranks[next(axis)] for extent in shape]
    y = scope.emit(rw.reshape(x, (*[1] * units, *large)))
    return relax.op.permute_dims(y, axes)


def _implicit_broadcast(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """An operand that was broadcast first is used as it is, when the result stays the same."""
    if not rw.is_tensor(call):
        return None
    args = list(call.args)
    for index, arg in enumerate(args):
        inner = scope.call(arg, "broadcast_to")
        if inner is not None and rw.is_tensor(inner.args[0]):
            trial = [*args[:index], inner.args[0], *args[index + 1 :]]
            if np.broadcast_shapes(*(static_shape(a) for a in trial)) == static_shape(call):
                args = trial
    if all(a.same_as(b) for a, b in zip(args, call.args, strict=True)):
        return None
    return relax.Call(call.op, args, call.attrs)


def _decided_where(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``where`` over a constant condition of one value is one of its branches."""
    condition = rw.constant(call.args[0])
    if condition is None or condition.size == 0 or condition.min() != condition.max():
        return None
    chosen = call.args[1] if condition.flat[0] else call.args[2]
    if static_shape(chosen) == static_shape(call):
        return chosen
    return relax.op.broadcast_to(chosen, relax.ShapeExpr(static_shape(call)))


def _beside_itself(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``x != x`` asks for what is not a number, which a compiler may take for never."""
    x, other = call.args
    if not x.same_as(other) or not rw.is_tensor(x) or not rw.is_float(x):
        return None
    found = relax.op.isnan(x)
    if rw.op_name(call) == "not_equal":
        return found
    return relax.op.logical_not(scope.emit(found))


def _both_true(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Truth values multiplied are both true; TVM cannot compile every product of them."""
    if not rw.is_tensor(call) or rw.dtype_of(call) != "bool":
        return None
    return relax.op.logical_and(*call.args)


def _neutral_element(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``x + 0``, ``x - 0``, ``x * 1``, ``x / 1`` and ``x ** 1`` are ``x``."""
    x, other = call.args
    neutral = 0.0 if rw.op_name(call) in ("add", "subtract") else 1.0
    if not rw.is_constant(other) or static_shape(x) != static_shape(call):
        return None
    value = rw.constant(other)
    return x if value is not None and value.size and bool(np.all(value == neutral)) else None


def _whole_slice(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """A slice of everything in order is its operand."""
    if not rw.is_tensor(call) or static_shape(call) != static_shape(call.args[0]):
        return None
    if len(call.args) > 4 and any(int(s) < 0 for s in call.args[4].fields):
        return None
    return call.args[0]


def _single_concat(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``concat`` without parts of extent 0; of one tensor that tensor; the tuple inline."""
    fields = scope.definition(call.args[0])
    if not isinstance(fields, relax.Tuple):
        return None
    axis = int(call.attrs.axis)
    kept = [x for x in fields.fields if static_shape(x)[axis]] or [fields.fields[0]]
    if len(kept) == 1:
        return kept[0]
    if isinstance(call.args[0], relax.Tuple) and len(kept) == len(fields.fields):
        return None
    return relax.op.concat(kept, axis=axis)


def _single_split(scope: Scope, item: relax.TupleGetItem) -> relax.Expr | None:
    """The only part of a split into one is the tensor itself."""
    split = scope.call(item.tuple_value, "split")
    if split is None or len(split.ty.fields) != 1:
        return None
    return split.args[0]


def _stack_to_concat(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``stack`` is a ``concat`` of reshaped tensors."""
    fields = scope.definition(call.args[0])
    if not isinstance(fields, relax.Tuple) or not rw.is_tensor(call):
        return None
    axis = int(call.attrs.axis) % len(static_shape(call))
    unit = tuple(1 if i == axis else d for i, d in enumerate(static_shape(call)))
    return relax.op.concat([scope.emit(rw.reshape(x, unit)) for x in fields.fields], axis=axis)


def _neutral_mask(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``mask & True`` is ``mask``."""
    for x, other in (call.args, call.args[::-1]):
        value = rw.constant(other)
        if value is None or rw.dtype_of(other) != "bool" or not bool(np.all(value)):
            continue
        return x if static_shape(x) == static_shape(call) else None
    return None


def _flat_take(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``reshape(take(x, reshape(i, (-1)), axis=0))`` is ``take(x, i, axis=0)``."""
    take = scope.call(call.args[0], "take")
    if take is None or take.attrs.axis is None or int(take.attrs.axis) != 0:
        return None
    flat = scope.call(take.args[1], *RESHAPES)
    if flat is None or not scope.only_use(call.args[0]) or not rw.is_tensor(call):
        return None
    if static_shape(call) != static_shape(flat.args[0]) + static_shape(take.args[0])[1:]:
        return None
    return relax.op.take(take.args[0], flat.args[0], axis=0, mode=str(take.attrs.mode))


def _scalar_take(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``take`` of one known place is a slice, which no backend takes for an embedding lookup."""
    index = rw.scalar(call.args[1])
    x = call.args[0]
    if index is None or call.attrs.axis is None or not rw.is_tensor(call) or rw.is_constant(x):
        return None
    axis = int(call.attrs.axis) % len(static_shape(x))
    start = int(index) % static_shape(x)[axis]
    sliced = relax.op.strided_slice(x, axes=[axis], begin=[start], end=[start + 1])
    return rw.reshape(scope.emit(sliced), static_shape(call))


def _pixel_shuffle(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Blocks of channels become blocks of pixels; TVM has the operator, but no program for it."""
    *outer, channels, height, width = static_shape(call.args[0])
    factor = int(call.attrs.upscale_factor)
    deep, first = channels // factor**2, len(outer)
    blocks = scope.emit(rw.reshape(call.args[0], (*outer, deep, factor, factor, height, width)))
    order = [*range(first), first, first + 3, first + 1, first + 4, first + 2]
    moved = scope.emit(relax.op.permute_dims(blocks, order))
    return rw.reshape(moved, (*outer, deep, height * factor, width * factor))


RULES: Rules = {
    "nn.pixel_shuffle": (_pixel_shuffle,),
    TUPLE_ITEM: (_drop_dropout, _single_split),
    **dict.fromkeys(RESHAPES, (_one_reshape, _permute_between_units, _flat_take)),
    "bitwise_and": (_neutral_mask,),
    **dict.fromkeys(_BROADCASTING, (_implicit_broadcast,)),
    "equal": (_implicit_broadcast, _beside_itself),
    "not_equal": (_implicit_broadcast, _beside_itself),
    "add": (_implicit_broadcast, _neutral_element),
    "subtract": (_implicit_broadcast, _neutral_element),
    "multiply": (_implicit_broadcast, _both_true, _neutral_element),
    "divide": (_implicit_broadcast, _neutral_element),
    "power": (_implicit_broadcast, _neutral_element),
    "logical_and": (_implicit_broadcast, _neutral_mask),
    "where": (_decided_where, _implicit_broadcast),
    "permute_dims": (_one_permute,),
    "astype": (_drop_same_type,),
    "broadcast_to": (_drop_same_type,),
    "strided_slice": (_whole_slice,),
    "concat": (_single_concat,),
    "stack": (_stack_to_concat,),
    "take": (_scalar_take,),
}
