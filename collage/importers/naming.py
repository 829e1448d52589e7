"""A builder that names every variable after what is being converted."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from collage.importers.functions import MAIN


class NamingBuilder(relax.BlockBuilder):
    """Binds what it is given, and the calls among its arguments, to variables of one name.

    TVM's converters return nested calls, the inner ones of which TVM would name ``lv``: of a
    convolution with a bias only the bias would bear the node's name.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((8,), "float32"))
    >>> builder = NamingBuilder()
    >>> builder.name = "stem"
    >>> with builder.function("main", [x]):
    ...     result = builder.emit(relax.op.exp(relax.op.nn.relu(x)))
    ...     builder.emit_func_output(result)
    >>> [str(b.var.name) for b in builder.get()["main"].body.blocks[0].bindings]
    ['stem', 'stem1']
    """

    name = ""
    """What is being converted."""

    def emit(self, expr: relax.Expr, name_hint: str = "") -> relax.Var:
        """As TVM's, with calls inside bound first.

        Parameters
        ----------
        expr : relax.Expr
            What is bound.
        name_hint : str
            The variable's name, if there is one to be had.

        Returns
        -------
        relax.Var
            Bound to it; named after the node under way where no name is given.
        """
        name = name_hint or self.name
        # A variable of the function's name would take it, and nobody would find the function.
        return super().emit(self._apart(expr), f"{name}_value" if name == MAIN else name)

    def normalize(self, expr: relax.Expr) -> relax.Expr:
        """As TVM's, with calls inside bound first."""
        return super().normalize(self._apart(expr))

    def _apart(self, expr: Any) -> Any:
        if not isinstance(expr, relax.Call) or tvm.ir.is_prim_expr(expr):
            return expr
        args = [self.emit(arg) if _is_call(arg) else arg for arg in expr.args]
        if all(new.same_as(old) for new, old in zip(args, expr.args, strict=True)):
            return expr
        return relax.Call(expr.op, args, expr.attrs, expr.ty_args, expr.span)


def _is_call(expr: Any) -> bool:
    return isinstance(expr, relax.Call) and not tvm.ir.is_prim_expr(expr)
