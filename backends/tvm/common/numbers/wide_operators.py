"""Operators whose kernels TVM writes out by hand, with sums in the type that they are given.

Loops without blocks cannot be widened from outside (``wide``): such an operator gets float32
operands instead, and its result is rounded by another kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op

from collage.backends.tvm.common.numbers.rounding import WIDE
from collage.backends.tvm.common.numbers.wide import is_narrow


def widen_operators() -> tvm.transform.Pass:
    """The pass that puts casts around them.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(4, 64)], lambda _, x: relax.op.cumsum(x, axis=1), "float16")
    >>> bindings = widen_operators()(mod)["main"].body.blocks[0].bindings
    >>> [str(binding.value.op.name) for binding in bindings]
    ['relax.astype', 'relax.cumsum', 'relax.astype']
    """

    def widen(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        mutator = _Widener(mod)
        for var, func in mod.functions.items():
            if isinstance(func, relax.Function):
                mutator.builder_.update_func(var, mutator.visit_expr(func))
        return mutator.builder_.get()

    return tvm.transform.module_pass(widen, opt_level=0, name="WidenOperators")


@relax.expr_functor.mutator
class _Widener(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        again = _AGAIN.get(str(call.op.name)) if isinstance(call.op, Op) else None
        if again is None or not _is_narrow(call) or not _accumulates(call):
            return super().visit_call_(call)
        dtype = str(call.ty.dtype)
        args = [self.visit_expr(arg) for arg in call.args]
        args = [self._emit(relax.op.astype(arg, WIDE)) if _is_narrow(arg) else arg for arg in args]
        return relax.op.astype(self._emit(again(call, args)), dtype)

    def _emit(self, expr: relax.Expr) -> relax.Var:
        return self.builder_.emit(expr)


def _is_narrow(expr: relax.Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType) and is_narrow(expr.ty.dtype)


def _accumulates(call: relax.Call) -> bool:
    """Whether several elements of an operand go into one of the result."""
    if "scatter" in str(call.op.name):
        return str(call.attrs.reduction) != "update"
    if str(call.op.name) == "relax.index_put":
        return bool(call.attrs.accumulate)
    return True


def _scan(operator: Callable[..., relax.Expr]) -> Callable[..., relax.Expr]:
    def again(call: relax.Call, args: list[relax.Expr]) -> relax.Expr:
        axis = call.attrs.axis
        return operator(
            args[0], None if axis is None else int(axis), WIDE, bool(call.attrs.exclusive)
        )

    return again


def _same(call: relax.Call, args: list[relax.Expr]) -> relax.Expr:
    return relax.Call(call.op, args, call.attrs, call.ty_args)


_AGAIN: dict[str, Callable[[Any, list[relax.Expr]], relax.Expr]] = {
    "relax.cumsum": _scan(relax.op.cumsum),
    "relax.cumprod": _scan(relax.op.cumprod),
    "relax.scatter_elements": _same,
    "relax.scatter_nd": _same,
    "relax.index_put": _same,
}
"""The call once more, on operands in float32."""
