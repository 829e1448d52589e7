"""Recurrent layers step by step, where a device has no kernel that loops over them."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from collage.backends.relax.recurrent import NAME, Recurrence
from collage.rewrite import Rules, Scope, apply_rules, op_name
from collage.rewrite.recurrent import Cell, standard_functions, write_out

__all__ = ["write_out_recurrent"]


def _written_out(scope: Scope, call: relax.Call, one: Recurrence) -> relax.Expr:
    functions = standard_functions(scope.emit, one.cell)
    cell = Cell(
        *(scope.emit, one.cell, one.direction, [functions] * len(one.backwards)),
        stepped=one.stepped,
    )
    return write_out(cell, one.operands(call.args))


def write_out_recurrent(
    mod: tvm.IRModule, keeps: Callable[[Recurrence], bool] = lambda _: False
) -> tvm.IRModule:
    """Write recurrent layers as products and activations, one step after the other.

    Parameters
    ----------
    mod : tvm.IRModule
        Normalized.
    keeps : callable, optional
        Says of a layer that it stays one operator.

    Returns
    -------
    tvm.IRModule
        Without the recurrent operators that are not kept; to be normalized again. ``mod`` itself
        where there are none.

    Examples
    --------
    >>> from collage.backends.relax.recurrent import recurrent
    >>> from collage.testing import graph
    >>> shapes = [(2, 1, 4), (1, 4, 4), (1, 1, 4)]
    >>> mod = graph(shapes, lambda emit, *x: emit(recurrent("rnn_tanh", "forward", x))[0])
    >>> main = write_out_recurrent(mod)["main"]
    >>> [op_name(binding.value) for binding in main.body.blocks[0].bindings].count("tanh")
    2
    >>> write_out_recurrent(mod, lambda layer: layer.steps < 10) is mod
    True
    """

    def write_out(scope: Scope, call: relax.Call) -> relax.Expr | None:
        one = Recurrence.of(call)
        return None if keeps(one) else _written_out(scope, call, one)

    values = (b.value for block in mod["main"].body.blocks for b in block.bindings)
    calls = [value for value in values if op_name(value) == NAME]
    if all(keeps(Recurrence.of(call)) for call in calls):
        return mod
    rules: Rules = {NAME: (write_out,)}
    return apply_rules(mod, rules)
