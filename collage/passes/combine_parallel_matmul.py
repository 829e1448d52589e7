"""Dense layers that read the same value become one, as the projections of attention do.

One product of ``(M, K)`` by ``(K, 3N)`` fills a GPU better than three by ``(K, N)``. Weights and
biases are joined here and now; a ``split`` hands each reader its part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from collage import rewrite as rw
from collage.backends.relax.static_shape import static_shape
from collage.rewrite import Scope

__all__ = ["combine_parallel_matmul"]


@dataclass(frozen=True)
class _Dense:
    """A matrix product with constant weights, and the bias right behind it.

    Attributes
    ----------
    result : relax.Var
        What the layer's readers use: the sum, or the product where there is no bias.
    weights : relax.Expr
        ``(K, N)``.
    bias : relax.Expr or None
        ``(N,)``.
    """

    x: relax.Var
    result: relax.Var
    weights: relax.Expr
    bias: relax.Expr | None

    @property
    def features(self) -> int:
        return static_shape(self.weights)[1]


def combine_parallel_matmul(mod: tvm.IRModule, least: int = 2) -> tvm.IRModule:
    """Join dense layers that share their input.

    Parameters
    ----------
    mod : tvm.IRModule
        Normalized. Layers are ``matmul(x, (K, N) constant)``, with or without ``add`` of an
        ``(N,)`` constant; only layers alike in this are joined.
    least : int
        How many layers must share an input.

    Returns
    -------
    tvm.IRModule
        ``mod`` itself where there are none.

    Examples
    --------
    >>> from collage.rewrite import flat_bindings, op_name
    >>> from collage.testing import constant, graph
    >>> def two_layers(emit, x):
    ...     left, right = (emit(relax.op.matmul(x, constant(8, 8))) for _ in range(2))
    ...     return relax.op.add(left, right)
    >>> mod = combine_parallel_matmul(graph([(4, 8)], two_layers))
    >>> [op_name(value) or "item" for var, value in flat_bindings(mod["main"])]
    ['matmul', 'split', 'item', 'item', 'add']
    """
    function = mod["main"]
    bindings = rw.flat_bindings(function)
    uses = rw.count_uses(bindings, function.body.body)
    groups = _groups([b for b in bindings if b[0] in uses], uses, least)
    if not groups:
        return mod
    members = {layer.result for group in groups for layer in group}
    # The sum takes the place of the group's first layer: its input is there by then.
    begin = {_product(group[0], bindings): group for group in groups}
    scope = Scope(relax.BlockBuilder(), rw.primfuncs(mod))
    new: dict[relax.Var, relax.Expr] = {}

    def leaf(expr: relax.Expr) -> relax.Expr:
        return new.get(expr, expr) if isinstance(expr, relax.Var) else expr

    with scope.function(function):
        for var, value in bindings:
            if var in begin:
                _emit(scope, begin[var], new)
            if var in uses and var not in new and var not in members:
                scope.begin(str(var.name))
                new[var] = scope.emit(scope.typed(rw.map_leaves(value, leaf)))
        scope.finish(rw.map_leaves(function.body.body, leaf))
    result = relax.transform.CanonicalizeBindings()(scope.module(mod))
    return relax.transform.DeadCodeElimination(["main"])(result)


Bindings = list[tuple[relax.Var, relax.Expr]]


def _groups(bindings: Bindings, uses: dict[relax.Var, int], least: int) -> list[list[_Dense]]:
    """Layers by what they read, the type of their weights and whether they have a bias."""
    biased = {}
    for var, value in bindings:
        if rw.op_name(value) == "add" and rw.is_constant(value.args[1]):
            biased[value.args[0]] = (var, value)
    found: dict[tuple[relax.Var, str, int, bool], list[_Dense]] = {}
    for var, value in bindings:
        if rw.op_name(value) != "matmul" or not isinstance(value.args[0], relax.Var):
            continue
        x, weights = value.args
        plain = rw.is_tensor(value) and rw.is_constant(weights) and len(static_shape(weights)) == 2
        if not plain or rw.dtype_of(value) != rw.dtype_of(weights):
            continue
        layer = _Dense(x, var, weights, None)
        after, total = biased.get(var, (None, None))
        if (
            total is not None
            and uses[var] == 1
            and static_shape(total.args[1]) == (layer.features,)
        ):
            layer = _Dense(x, after, weights, total.args[1])
        key = (x, rw.dtype_of(weights), static_shape(weights)[0], layer.bias is not None)
        found.setdefault(key, []).append(layer)
    return [layers for layers in found.values() if len(layers) >= least]


def _product(layer: _Dense, bindings: Bindings) -> relax.Var:
    """The variable of a layer's product."""
    value = dict(bindings)[layer.result]
    return value.args[0] if layer.bias is not None else layer.result


def _emit(scope: Scope, group: list[_Dense], new: dict[relax.Var, relax.Expr]) -> None:
    """The joined layer and its parts."""
    scope.begin(str(group[0].result.name))
    dtype = rw.dtype_of(group[0].weights)
    weights = np.concatenate([_value(layer.weights) for layer in group], axis=1)
    x = new.get(group[0].x, group[0].x)
    total = scope.emit(relax.op.matmul(x, rw.make_constant(weights, dtype)))
    if group[0].bias is not None:
        bias = np.concatenate([_value(layer.bias) for layer in group])
        total = scope.emit(relax.op.add(total, rw.make_constant(bias, dtype)))
    ends = np.cumsum([layer.features for layer in group])[:-1]
    parts = scope.emit(relax.op.split(total, [int(end) for end in ends], axis=-1))
    for index, layer in enumerate(group):
        new[layer.result] = scope.emit(relax.TupleGetItem(parts, index), str(layer.result.name))


def _value(expr: relax.Expr | None) -> np.ndarray:
    value = None if expr is None else rw.constant(expr)
    assert value is not None
    return value
