"""Which results of a model are its own memory: weights, inputs, or views of them."""

from __future__ import annotations

import tvm
from tvm import relax

from collage.search.rules.host import RESHAPES


def borrowed_outputs(main: relax.Function) -> tuple[int, ...]:
    """The outputs that a call does not make anew, by position.

    Whoever writes into such a result would change the model's weights or the caller's inputs, so it
    has to be copied first.

    Parameters
    ----------
    main : relax.Function
        The entry of a partitioned module.

    Examples
    --------
    >>> from collage.testing import constant, graph
    >>> weights = constant(4)
    >>> def body(emit, x):
    ...     return relax.Tuple([emit(relax.op.exp(x)), emit(relax.op.reshape(x, (2, 2))), weights])
    >>> borrowed_outputs(graph([(4,)], body)["main"])
    (1, 2)
    """
    bound = {b.var: b.value for block in main.body.blocks for b in block.bindings}

    def resolved(expr: relax.Expr) -> relax.Expr:
        while isinstance(expr, relax.Var) and expr in bound:
            expr = bound[expr]
        return expr

    def made(expr: relax.Expr) -> bool:
        expr = resolved(expr)
        if isinstance(expr, relax.TupleGetItem):
            whole = resolved(expr.tuple_value)
            if isinstance(whole, relax.Tuple):
                return made(whole.fields[expr.index])
            return isinstance(whole, relax.Call)
        if not isinstance(expr, relax.Call):
            return False
        name = str(expr.op.name) if isinstance(expr.op, tvm.ir.Op) else ""
        return made(expr.args[0]) if name.removeprefix("relax.") in RESHAPES else True

    output = resolved(main.body.body)
    fields = list(output.fields) if isinstance(output, relax.Tuple) else [output]
    return tuple(index for index, field in enumerate(fields) if not made(field))
