"""Outputs that are the same in every call: they lie in what was compiled, and are nobody's own."""

from __future__ import annotations

from tvm import relax

from collage.rewrite import is_constant


def constant_outputs(main: relax.Function) -> tuple[int, ...]:
    """The places of a function's results that are constants.

    Parameters
    ----------
    main : relax.Function
        Whose result is a tensor or a tuple of tensors.
    """
    values = {
        binding.var: binding.value for block in main.body.blocks for binding in block.bindings
    }

    def resolved(expr: relax.Expr) -> relax.Expr:
        while isinstance(expr, relax.Var) and expr in values:
            expr = values[expr]
        return expr

    result = resolved(main.body.body)
    fields = list(result.fields) if isinstance(result, relax.Tuple) else [result]
    return tuple(place for place, field in enumerate(fields) if is_constant(resolved(field)))
