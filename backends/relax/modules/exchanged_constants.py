"""Functions that make some of their constants at their beginning.

What TVM's virtual machine should not read from the library is bound to a variable there: weights in
files, and constants without elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import tvm
from tvm import ir, relax
from tvm.relax.op import vm

from collage.backends.relax.static_shape import static_shape, tensor_dtype

Exchanged = tuple[Hashable, relax.Expr]
"""What stands for a constant: equal keys are bound once."""


@dataclass
class Exchange:
    """Exchanges the constants of one function for variables.

    Attributes
    ----------
    taken : callable
        What is bound in a constant's place, or None where it stays.
    bindings : list of relax.VarBinding
        Those that were met.
    """

    taken: Callable[[ir.GenericConst], Exchanged | None]
    bindings: list[relax.VarBinding] = field(default_factory=list)
    _vars: dict[Hashable, relax.Var] = field(default_factory=dict)

    def sequence(self, body: relax.SeqExpr) -> relax.SeqExpr:
        """The body of a function with variables in it.

        Parameters
        ----------
        body : relax.SeqExpr
            Flat, as TVM's last passes leave it.

        Returns
        -------
        relax.SeqExpr
            It needs :attr:`bindings` before it.
        """
        blocks = [
            type(block)([self._binding(binding) for binding in block.bindings])
            for block in body.blocks
        ]
        return relax.SeqExpr(blocks, self._expr(body.body))

    def _binding(self, binding: relax.Binding) -> relax.Binding:
        if not isinstance(binding, relax.VarBinding):
            return binding
        return relax.VarBinding(binding.var, self._expr(binding.value))

    def _expr(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, ir.GenericConst):
            found = self.taken(expr)
            return expr if found is None else self._var(expr, *found)
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._expr(one) for one in expr.fields])
        if isinstance(expr, relax.Call):
            args = [self._expr(one) for one in expr.args]
            return relax.Call(expr.op, args, expr.attrs, expr.ty_args, expr.span)
        if isinstance(expr, relax.If):
            branches = (self.sequence(one) for one in (expr.true_branch, expr.false_branch))
            return relax.If(expr.cond, *branches, expr.span)
        return expr

    def _var(self, constant: ir.GenericConst, key: Hashable, value: relax.Expr) -> relax.Var:
        if key not in self._vars:
            var = relax.Var(f"constant_{len(self._vars)}", constant.ty)
            self._vars[key] = var
            self.bindings.append(relax.VarBinding(var, value))
        return self._vars[key]


def bytes_of(constant: ir.GenericConst) -> int:
    """What a constant takes; none where it is no tensor."""
    if not isinstance(constant.ty, relax.TensorType):
        return 0
    bits = int(tvm.DataType(tensor_dtype(constant.ty)).bits)
    return math.prod(static_shape(constant.ty)) * -(-bits // 8)


def with_bindings(
    function: relax.Function, first: list[relax.VarBinding], body: relax.SeqExpr
) -> relax.Function:
    """A function that begins with some bindings.

    Parameters
    ----------
    function : relax.Function
        Whose parameters, type and attributes it has.
    first : list of relax.VarBinding
        What it begins with.
    body : relax.SeqExpr
        What comes then.

    Returns
    -------
    relax.Function
        The same where there are none.
    """
    if not first:
        return function
    begun = relax.SeqExpr([relax.BindingBlock(first), *body.blocks], body.body)
    return relax.Function(function.params, begun, function.ret_ty, function.is_pure, function.attrs)


def make_empty_constants() -> tvm.transform.Pass:
    """The pass that has constants without elements made in each call, after all of TVM's: they are
    written into a library, and cannot be read out of it."""

    def made(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        updated = mod.clone()
        for var, function in mod.functions_items():
            if isinstance(function, relax.Function):
                exchange = Exchange(_made)
                body = exchange.sequence(function.body)
                if exchange.bindings:
                    updated[var] = with_bindings(function, exchange.bindings, body)
        return updated

    return tvm.transform.module_pass(made, opt_level=0, name="MakeEmptyConstants")


def _made(constant: ir.GenericConst) -> Exchanged | None:
    if not isinstance(constant.ty, relax.TensorType) or bytes_of(constant):
        return None
    shape, dtype = static_shape(constant.ty), tensor_dtype(constant.ty)
    storage = vm.alloc_storage(relax.ShapeExpr([1]), 0, "uint8")
    return (shape, dtype), vm.alloc_tensor(storage, 0, relax.ShapeExpr(shape), dtype)
