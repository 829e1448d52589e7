"""Channels last: a convolution network in NCHW becomes one in NHWC, with OHWI weights.

So do networks of one and three spatial axes, and transposed convolutions, in IHWO.

GPU libraries, tensor cores above all, want the channels of a pixel side by side. One walk over the
function does it: every value is known in one or more orders of its axes, operators that do not care
run in the order their operands already have, and a permutation is written only where an operator
insists on an order that is not there yet. Weights and other constants are reordered here and now.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import relax

from collage import rewrite as rw
from collage.backends.relax.static_shape import static_shape
from collage.passes.channels_last_orders import Axes, channels_last, identity
from collage.passes.channels_last_rules import CONVOLUTIONS, RULES, is_channels_first
from collage.rewrite import TUPLE_ITEM, Scope

__all__ = ["in_orders_of_borders", "to_channels_last"]


def to_channels_last(mod: tvm.IRModule) -> tvm.IRModule:
    """Rewrite ``main`` so that its convolutions and pools run on data with channels last.

    Parameters
    ----------
    mod : tvm.IRModule
        Normalized; inputs and outputs keep their shapes and order of axes.

    Returns
    -------
    tvm.IRModule
        ``mod`` itself where ``main`` has no convolution in NCHW or its like.

    Examples
    --------
    >>> from collage.rewrite import flat_bindings, op_name
    >>> from collage.testing import constant, graph
    >>> mod = graph([(1, 3, 8, 8)], lambda emit, x: relax.op.nn.conv2d(x, constant(4, 3, 3, 3)))
    >>> [op_name(value) for var, value in flat_bindings(to_channels_last(mod)["main"])]
    ['permute_dims', 'nn.conv2d', 'permute_dims']
    """
    if not any(_is_channels_first(value) for _, value in rw.flat_bindings(mod["main"])):
        return mod
    return _walked(mod)


def in_orders_of_borders(function: relax.Function) -> relax.Function:
    """Run a partition's operators on pictures as they lie at its border, in place of converting.

    Parameters
    ----------
    function : relax.Function
        Of a partition that converts what it reads, what it gives, or both.

    Returns
    -------
    relax.Function
        With the same attributes; what needs another order is still converted.

    Examples
    --------
    >>> from collage.rewrite import flat_bindings, op_name
    >>> from collage.testing import graph
    >>> def build(emit, x):
    ...     y = emit(relax.op.nn.max_pool2d(emit(relax.op.permute_dims(x, [0, 3, 1, 2])), (2, 2)))
    ...     return relax.op.permute_dims(y, [0, 2, 3, 1])
    >>> pooled = in_orders_of_borders(graph([(1, 8, 8, 4)], build)["main"])
    >>> [op_name(value) for var, value in flat_bindings(pooled)]
    ['nn.max_pool2d']
    """
    made = _walked(tvm.IRModule({relax.GlobalVar("main"): function}))
    turned = relax.transform.ToNonDataflow()(made)["main"]
    return relax.Function(turned.params, turned.body, turned.ret_ty, turned.is_pure, function.attrs)


def _walked(mod: tvm.IRModule) -> tvm.IRModule:
    function = mod["main"]
    bindings = rw.flat_bindings(function)
    uses = rw.count_uses(bindings, function.body.body)
    scope = Scope(relax.BlockBuilder(), rw.primfuncs(mod))
    walk = _Walk(scope, _readers(bindings))
    with scope.function(function):
        for param in function.params:
            walk.orders.put(param, param)
        for var, value in bindings:
            if var in uses:
                scope.begin(str(var.name))
                walk.rewrite(var, value)
        scope.finish(rw.map_leaves(function.body.body, walk.plain))
    result = relax.transform.CanonicalizeBindings()(scope.module(mod))
    return relax.transform.DeadCodeElimination(["main"])(result)


def _is_channels_first(value: relax.Expr) -> bool:
    return rw.op_name(value) in CONVOLUTIONS and is_channels_first(value)


_Readers = dict[relax.Var, list[relax.Expr]]


def _readers(bindings: list[tuple[relax.Var, relax.Expr]]) -> _Readers:
    """The bindings' values that read each variable."""
    found: _Readers = {}

    def note(value: relax.Expr) -> Callable[[relax.Expr], relax.Expr]:
        def leaf(expr: relax.Expr) -> relax.Expr:
            if isinstance(expr, relax.Var):
                found.setdefault(expr, []).append(value)
            return expr

        return leaf

    for _, value in bindings:
        rw.map_leaves(value, note(value))
    return found


@dataclass
class _Orders:
    """The orders of axes in which each old variable's value exists in the new function."""

    scope: Scope
    _known: dict[relax.Var, dict[Axes, relax.Expr]] = field(default_factory=dict)
    _constants: dict[tuple[relax.Expr, Axes], relax.Expr] = field(default_factory=dict)

    def put(self, var: relax.Var, value: relax.Expr, axes: Axes = ()) -> None:
        """Note that ``value`` is the variable's value with its axes in this order."""
        rank = len(static_shape(var)) if rw.is_tensor(var) else 0
        self._known.setdefault(var, {})[axes or identity(rank)] = value

    def of(self, expr: relax.Expr) -> Axes:
        """The order to take a value in when any will do: one that is not its own, if there is."""
        known = self._known.get(expr, {}) if isinstance(expr, relax.Var) else {}
        own = identity(len(static_shape(expr))) if rw.is_tensor(expr) else ()
        return next((axes for axes in known if axes != own), own)

    def get(self, expr: relax.Expr, axes: Axes) -> relax.Expr:
        """The value in this order, permuted now if it does not exist so yet."""
        if rw.is_constant(expr):
            return self._constant(expr, axes)
        if not isinstance(expr, relax.Var):
            return expr
        known = self._known[expr]
        if axes not in known:
            have, value = next(iter(known.items()))
            if rw.is_tensor(expr):
                known[axes] = self._permuted(value, have, axes)
            else:
                items = [relax.TupleGetItem(value, i) for i in range(len(expr.ty.fields))]
                own = identity(len(have))
                parts = [self._permuted(self.scope.emit(item), have, own) for item in items]
                known[axes] = self.scope.emit(relax.Tuple(parts))
        return known[axes]

    def _permuted(self, value: relax.Expr, have: Axes, wanted: Axes) -> relax.Expr:
        axes = tuple(have.index(axis) for axis in wanted)
        permute = self.scope.call(value, "permute_dims")
        if permute is None:
            return self.scope.emit(_permuted(value, axes))
        # Two permutations are one, or none.
        inner = rw.permutation(permute)
        both = tuple(inner[axis] for axis in axes)
        source = permute.args[0]
        return source if both == identity(len(both)) else self.scope.emit(_permuted(source, both))

    def _constant(self, expr: relax.Expr, axes: Axes) -> relax.Expr:
        if axes == identity(len(axes)) and len(axes) == len(static_shape(expr)):
            return expr
        key = (expr, axes)
        if key not in self._constants:
            value = rw.constant(expr)
            assert value is not None
            full = value.reshape((1,) * (len(axes) - value.ndim) + value.shape)
            self._constants[key] = rw.make_constant(np.transpose(full, axes), rw.dtype_of(expr))
        return self._constants[key]


def _permuted(x: relax.Expr, axes: Axes) -> relax.Expr:
    """``permute_dims``, or a reshape where only axes of one element move."""
    shape = static_shape(x)
    moved = [axis for axis in axes if shape[axis] != 1]
    if moved == sorted(moved):
        return relax.op.reshape(x, relax.ShapeExpr([shape[axis] for axis in axes]))
    return relax.op.permute_dims(x, list(axes))


class _Walk:
    """Rewrites one binding after the other."""

    def __init__(self, scope: Scope, readers: _Readers) -> None:
        self.scope = scope
        self.readers = readers
        self.orders = _Orders(scope)
        self.weights_rows: dict[relax.Var, tuple[int, ...]] = {}

    def plain(self, expr: relax.Expr) -> relax.Expr:
        """An operand in its own order."""
        if isinstance(expr, relax.Var) and rw.is_tensor(expr):
            return self.orders.get(expr, identity(len(static_shape(expr))))
        return self.orders.get(expr, ()) if isinstance(expr, relax.Var) else expr

    def rewrite(self, var: relax.Var, value: relax.Expr) -> None:
        """Emit the binding's value, in an order that costs no permutation where one is found."""
        key = TUPLE_ITEM if isinstance(value, relax.TupleGetItem) else rw.op_name(value)
        if self._flattened(var, value) or self._dense_after_flatten(var, value):
            return
        rule = RULES.get(key)
        answer = rule(self.orders, value) if rule is not None else None
        if answer is None:
            typed = self.scope.typed(rw.map_leaves(value, self.plain))
            self.orders.put(var, self.scope.emit(typed))
            return
        for expr, order in answer.results:
            emitted = self.scope.emit(self.scope.typed(expr))
            self.orders.put(var, emitted, order)

    def _flattened(self, var: relax.Var, value: relax.Expr) -> bool:
        """Flatten channels last where dense layers alone read it: their weights follow."""
        if rw.op_name(value) != "reshape" or not rw.is_tensor(value.args[0]):
            return False
        x = value.args[0]
        shape, order = static_shape(x), self.orders.of(x)
        flat = (shape[0], math.prod(shape[1:]))
        if order != channels_last(len(shape)) or static_shape(value) != flat or not _matters(shape):
            return False
        if not all(_is_dense(reader, var) for reader in self.readers.get(var, [])):
            return False
        last = self.orders.get(x, order)
        self.orders.put(var, self.scope.emit(relax.op.reshape(last, relax.ShapeExpr(flat))))
        self.weights_rows[var] = shape[1:]
        return True

    def _dense_after_flatten(self, var: relax.Var, value: relax.Expr) -> bool:
        planes = self.weights_rows.get(value.args[0]) if _is_dense(value, None) else None
        if planes is None:
            return False
        weights = rw.constant(value.args[1])
        assert weights is not None
        rows = np.moveaxis(weights.reshape(*planes, -1), 0, -2).reshape(weights.shape)
        product = relax.op.matmul(
            self.plain(value.args[0]),
            rw.make_constant(rows, rw.dtype_of(value.args[1])),
            out_dtype=value.attrs.out_dtype or None,
        )
        self.orders.put(var, self.scope.emit(product))
        return True


def _matters(shape: tuple[int, ...]) -> bool:
    """Whether channels first and last put the elements of (N, C, ...) in different places."""
    return shape[1] > 1 and math.prod(shape[2:]) > 1


def _is_dense(value: relax.Expr, x: relax.Var | None) -> bool:
    """Whether this is a product of ``x`` (anything for None) with constant (K, N) weights."""
    if rw.op_name(value) != "matmul" or not rw.is_constant(value.args[1]):
        return False
    right = len(static_shape(value.args[1])) == 2 and isinstance(value.args[0], relax.Var)
    return right and (x is None or value.args[0].same_as(x))
