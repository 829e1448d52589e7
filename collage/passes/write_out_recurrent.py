"""Recurrent layers step by step, for devices on which a loop over steps is no kernel."""

from __future__ import annotations

import tvm
from tvm import relax

from collage.backends.relax.recurrent import NAME, Recurrence
from collage.rewrite import Rules, Scope, apply_rules, op_name
from collage.rewrite.recurrent import Cell, standard_functions, write_out

__all__ = ["write_out_recurrent"]


def _write_out(scope: Scope, call: relax.Call) -> relax.Expr:
    one = Recurrence.of(call)
    functions = standard_functions(scope.emit, one.cell)
    cell = Cell(
        *(scope.emit, one.cell, one.direction, [functions] * len(one.backwards)),
        stepped=one.stepped,
    )
    return write_out(cell, one.operands(call.args))


_RULES: Rules = {NAME: (_write_out,)}


def write_out_recurrent(mod: tvm.IRModule) -> tvm.IRModule:
    """Write recurrent layers as products and activations, one step after the other.

    Parameters
    ----------
    mod : tvm.IRModule
        Normalized.

    Returns
    -------
    tvm.IRModule
        Without the recurrent operator; to be normalized again. ``mod`` itself where it has none.

    Examples
    --------
    >>> from collage.backends.relax.recurrent import recurrent
    >>> from collage.testing import graph
    >>> shapes = [(2, 1, 4), (1, 4, 4), (1, 1, 4)]
    >>> mod = graph(shapes, lambda emit, *x: emit(recurrent("rnn_tanh", "forward", x))[0])
    >>> main = write_out_recurrent(mod)["main"]
    >>> [op_name(binding.value) for binding in main.body.blocks[0].bindings].count("tanh")
    2
    """
    values = (b.value for block in mod["main"].body.blocks for b in block.bindings)
    return apply_rules(mod, _RULES) if any(op_name(v) in _RULES for v in values) else mod
