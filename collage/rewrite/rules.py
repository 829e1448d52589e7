"""Rules by operator, and the driver that applies them until none has anything left to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from collage.rewrite.digits import Digits
from collage.rewrite.expressions import is_constant, op_name
from collage.rewrite.scope import Scope, count_uses, flat_bindings, map_leaves, primfuncs

_MAX_ROUNDS = 100
"""Far above what any model needs (deep ones take about 10): rules that undo each other end here."""

ANY_CALL = "*"
"""The key of rules that look at every operator call, after those of its own name."""

TUPLE_ITEM = "TupleGetItem"
"""The key of rules that look at tuple items; all others are keyed by operator name."""

Rule = Callable[[Scope, Any], relax.Expr | None]
"""Is shown one call whose operands are already rewritten; what it gives takes the call's place."""

Rules = Mapping[str, tuple[Rule, ...]]
"""Rules by the operator's name, without ``relax.``."""


def merge_rules(families: Sequence[Rules]) -> dict[str, tuple[Rule, ...]]:
    """One table from several; for one operator, earlier families are asked first.

    Examples
    --------
    >>> def first(scope, call): ...
    >>> def second(scope, call): ...
    >>> merged = merge_rules([{"add": (first,)}, {"add": (second,), "exp": (second,)}])
    >>> merged["add"] == (first, second), sorted(merged)
    (True, ['add', 'exp'])
    """
    merged: dict[str, tuple[Rule, ...]] = {}
    for family in families:
        for name, rules in family.items():
            merged[name] = merged.get(name, ()) + rules
    return merged


def apply_rules(mod: tvm.IRModule, rules: Rules, digits: Digits | None = None) -> tvm.IRModule:
    """The module with ``main`` rewritten until no rule applies, and dead code dropped on the way.

    Parameters
    ----------
    mod : tvm.IRModule
        ``main`` is straight-line code.
    rules : mapping of str to tuple of callable
        Those of one operator are asked in order; the first answer counts.
    digits : Digits, optional
        What is known of the constants, for other rules to go on with.

    Returns
    -------
    IRModule
        One of which no rule has anything more to say.

    Raises
    ------
    ModelError
        When ``main`` has control flow: there is no single dataflow block then.

    Examples
    --------
    The exponential of a logarithm is the value itself:

    >>> from tvm.relax import op
    >>> from collage.testing import graph
    >>> def exp_of_log(scope, call):
    ...     log = scope.call(call.args[0], "log")
    ...     return None if log is None else log.args[0]
    >>> mod = graph([(8,)], lambda emit, x: op.nn.relu(emit(op.exp(emit(op.log(x))))))
    >>> mod = apply_rules(mod, {"exp": (exp_of_log,)})
    >>> [op_name(value) for var, value in flat_bindings(mod["main"])][0]
    'nn.relu'
    """
    digits = Digits() if digits is None else digits
    for _ in range(_MAX_ROUNDS):
        mod, changed = _one_round(mod, rules, digits=digits)
        if not changed:
            return mod
        digits.keep(mod["main"])
    raise AssertionError(f"normalization rules did not settle in {_MAX_ROUNDS} rounds")


def map_constants(mod: tvm.IRModule, replace: Callable[[relax.Expr], relax.Expr]) -> tvm.IRModule:
    """The module with other constants in ``main``.

    Parameters
    ----------
    mod : tvm.IRModule
        ``main`` is straight-line code.
    replace : callable
        Gives what takes the place of an inline constant.

    Returns
    -------
    IRModule
        Without what became dead.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.testing import graph
    >>> mod = graph([(8,)], lambda emit, x: op.add(x, relax.const(1.0)))
    >>> mod = map_constants(mod, lambda one: relax.const(2.0))
    >>> float(flat_bindings(mod["main"])[0][1].args[1].value.numpy())
    2.0
    """
    return _one_round(mod, {}, replace)[0]


def _one_round(
    mod: tvm.IRModule,
    rules: Rules,
    replace: Callable[[relax.Expr], relax.Expr] | None = None,
    digits: Digits | None = None,
) -> tuple[tvm.IRModule, bool]:
    function = mod["main"]
    bindings = flat_bindings(function)
    output = function.body.body
    uses = count_uses(bindings, output)
    scope = Scope(relax.BlockBuilder(), primfuncs(mod), digits)
    changed = False
    new: dict[relax.Var, relax.Expr] = {}

    def leaf(expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Var):
            return new.get(expr, expr)
        return replace(expr) if replace and is_constant(expr) else expr

    with scope.function(function):
        for param in function.params:
            new[param] = param
            scope.note_uses(param, uses.get(param, 0))
        for var, value in bindings:
            if var not in uses:
                changed = True
                continue
            scope.begin(str(var.name))
            expr = scope.typed(map_leaves(value, leaf))
            replaced = _first_answer(scope, expr, rules)
            changed = changed or replaced is not None
            new[var] = scope.emit(expr if replaced is None else replaced)
            scope.note_uses(new[var], uses[var])
        scope.finish(map_leaves(output, leaf))
    return scope.module(mod), changed


def _first_answer(scope: Scope, expr: relax.Expr, rules: Rules) -> relax.Expr | None:
    key = TUPLE_ITEM if isinstance(expr, relax.TupleGetItem) else op_name(expr)
    for rule in rules.get(key, ()) + (rules.get(ANY_CALL, ()) if key else ()):
        answer = rule(scope, expr)
        if answer is not None:
            return answer
    return None
