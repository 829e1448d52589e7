"""A split as slices, for devices whose libraries run regions of operators with one result each.

A split's result is a tuple; whoever takes a part out of it is an operator of its own, which no
library has, so a region of a library would end at every split of channels. A slice stands in the
region, where most of them are views of what they are cut from, and TVM fuses it with what follows.
"""

from __future__ import annotations

import tvm
from tvm import relax

from collage import rewrite as rw
from collage.backends.relax.static_shape import static_shape
from collage.rewrite import TUPLE_ITEM, Rules, Scope, apply_rules, op_name

__all__ = ["split_to_slices"]

_MOST_PARTS = 8
"""More are steps of a loop: one kernel that cuts them all is better than one for each."""


def _slice(scope: Scope, item: relax.TupleGetItem) -> relax.Expr | None:
    split = scope.call(item.tuple_value, "split")
    if split is None or not rw.is_tensor(split.args[0]):
        return None
    parts = [static_shape(field) for field in split.ty.fields]
    if not 1 < len(parts) <= _MOST_PARTS:
        return None
    axis = int(split.attrs.axis) % len(parts[0])
    begin = sum(part[axis] for part in parts[: item.index])
    end = begin + parts[item.index][axis]
    return relax.op.strided_slice(split.args[0], axes=[axis], begin=[begin], end=[end])


_RULES: Rules = {TUPLE_ITEM: (_slice,)}


def split_to_slices(mod: tvm.IRModule) -> tvm.IRModule:
    """Write splits into a few parts as one slice for each part that is used.

    Returns
    -------
    tvm.IRModule
        To be normalized again, for a slice may be of a constant or whole; ``mod`` itself where
        there are no splits.

    Examples
    --------
    >>> from collage.rewrite import flat_bindings, op_name
    >>> from collage.testing import graph
    >>> def halves(emit, x):
    ...     parts = emit(relax.op.split(x, 2, axis=1))
    ...     return relax.op.add(emit(parts[0]), emit(parts[1]))
    >>> mod = split_to_slices(graph([(1, 4, 8)], halves))
    >>> [op_name(value) for var, value in flat_bindings(mod["main"])]
    ['strided_slice', 'strided_slice', 'add']
    """
    values = (b.value for block in mod["main"].body.blocks for b in block.bindings)
    return apply_rules(mod, _RULES) if any(op_name(v) == "split" for v in values) else mod
