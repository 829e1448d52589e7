"""Which results of a model are its own memory: weights, inputs, or views of them."""

from __future__ import annotations

from collections.abc import Iterable

import tvm
from tvm import relax

from collage.backends.relax.modules.courses import set_aside
from collage.search.bindings import used_vars
from collage.search.rules.host import RESHAPES


def borrowed_outputs(mod: tvm.IRModule, names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """By function, the outputs that a call does not make anew, by position.

    Whoever writes into such a result would change the model's weights or the caller's inputs, so it
    has to be copied first. What depends on no input is among them: it may have been computed once,
    when the model was compiled.

    Parameters
    ----------
    mod : tvm.IRModule
        A partitioned module.
    names : iterable of str
        Of its functions that are called.

    Returns
    -------
    dict[str, tuple[int, ...]]
        Positions, ascending; empty where every result is the call's own.

    Examples
    --------
    >>> from collage.testing import constant, graph
    >>> weights = constant(4)
    >>> def body(emit, x):
    ...     made, turned = emit(relax.op.exp(x)), emit(relax.op.reshape(x, (2, 2)))
    ...     return relax.Tuple([made, turned, weights, emit(relax.op.exp(weights))])
    >>> borrowed_outputs(graph([(4,)], body), ["main"])
    {'main': (1, 2, 3)}
    """
    # What data choose may be anything that was there.
    rest, courses = set_aside(mod)
    # As TVM sees them when it computes what it can: a partition's results one by one.
    rest = relax.transform.InlinePrivateFunctions()(rest)
    return {
        name: tuple(range(_count(courses[name]))) if name in courses else _borrowed(rest[name])
        for name in names
    }


def _count(function: relax.Function) -> int:
    result = function.ret_ty
    return len(result.fields) if isinstance(result, relax.TupleType) else 1


def _borrowed(main: relax.Function) -> tuple[int, ...]:
    bound: dict[relax.Var, relax.Expr] = {}
    variable = set(main.params)
    for block in main.body.blocks:
        for binding in block.bindings:
            bound[binding.var] = binding.value
            if variable.intersection(used_vars(binding.value)):
                variable.add(binding.var)

    def resolved(expr: relax.Expr) -> relax.Expr:
        while isinstance(expr, relax.Var) and expr in bound:
            expr = bound[expr]
        return expr

    def made(expr: relax.Expr) -> bool:
        expr = resolved(expr)
        if isinstance(expr, relax.TupleGetItem):
            whole = resolved(expr.tuple_value)
            return made(whole.fields[expr.index] if isinstance(whole, relax.Tuple) else whole)
        if not isinstance(expr, relax.Call):
            return False
        name = str(expr.op.name) if isinstance(expr.op, tvm.ir.Op) else ""
        if name.removeprefix("relax.") in RESHAPES:
            return made(expr.args[0])
        return bool(variable.intersection(used_vars(expr)))

    output = resolved(main.body.body)
    fields = list(output.fields) if isinstance(output, relax.Tuple) else [output]
    return tuple(index for index, field in enumerate(fields) if not made(field))
