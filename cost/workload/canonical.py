"""A partition's module in its canonical form: no names, no weights.

Two partitions that compile to the same code get the same text here, whatever their layers are
called and whatever their weights hold. The ``Codegen`` and ``Composite`` structure stays, for it
decides how a partition is compiled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import tvm
from tvm import ir, relax
from tvm.relax.expr import _update_type

from collage.backends.contract.errors import MeasurementError
from collage.backends.relax.constant_data import constant_data
from collage.backends.relax.tensor_spec import TensorSpec
from collage.backends.relax.trees import NAME as TREES

PLACEHOLDER = "collage.constant"
"""Name of the packed function whose call stands for a constant, with its index; never run."""

INLINE_INTEGERS = 4096
"""Integer constants of at most this many elements keep their values (shapes, small tables)."""

_STRUCTURES = frozenset({TREES})
"""Operators whose integer constants say where to go on: no others can stand for them."""

ConstantRule = Callable[[ir.GenericConst, bool], relax.Expr]
"""What becomes of a constant, told whether its values have to stay."""


def placeholder(index: int, ty: ir.Type) -> ir.Call:
    """The expression that stands for a constant.

    Parameters
    ----------
    index : int
        Its number.
    ty : ir.Type
        Its type.

    Returns
    -------
    ir.Call
        A call of an external function with the index as its only argument.
    """
    return ir.Call(relax.ExternFunc(PLACEHOLDER), [relax.prim_value(index)], None, [ty], ret_ty=ty)


def placeholder_index(expr: relax.Expr) -> int | None:
    """The index of a placeholder, None for any other expression."""
    if not isinstance(expr, ir.Call) or not isinstance(expr.op, relax.ExternFunc):
        return None
    return int(expr.args[0].value) if str(expr.op.global_symbol) == PLACEHOLDER else None


def keeps_integers(call: ir.Call) -> bool:
    """Whether a workload keeps a call's integer constants, however many they are."""
    return isinstance(call.op, ir.Op) and str(call.op.name) in _STRUCTURES


def inline_digest(constant: ir.GenericConst, *, stays: bool = False) -> str | None:
    """A digest of the content of a constant that a workload keeps; None of one that it replaces.

    Parameters
    ----------
    constant : GenericConst
        Small integers are kept, and what has one element.
    stays : bool
        Whether integers are kept however many they are.

    Returns
    -------
    str or None
        SHA-256.
    """
    spec = TensorSpec.of(constant.ty)
    few = stays or spec.size <= INLINE_INTEGERS
    # One without elements cannot be read from what TVM writes.
    if spec.size == 1 or (spec.is_integer and spec.size and few):
        return hashlib.sha256(constant_data(constant).tobytes()).hexdigest()
    return None


class ConstantCollector:
    """Replaces weights by placeholders and keeps the rest inline.

    Attributes
    ----------
    constants : list of GenericConst
        What the placeholders stand for, by index; one constant used twice has one index.
    inline_digests : list of str
        The content of constants that stay, in order: TVMScript does not print it.
    """

    def __init__(self) -> None:
        self.constants: list[ir.GenericConst] = []
        self.inline_digests: list[str] = []
        self._index: dict[ir.GenericConst, int] = {}

    def __call__(self, constant: ir.GenericConst, stays: bool = False) -> relax.Expr:
        if constant in self._index:
            return placeholder(self._index[constant], constant.ty)
        digest = inline_digest(constant, stays=stays)
        if digest is not None:
            self.inline_digests.append(digest)
            return constant
        self._index[constant] = len(self.constants)
        self.constants.append(constant)
        return placeholder(self._index[constant], constant.ty)


class Rebuilder:
    """Rebuilds functions with fresh canonical names.

    Parameters
    ----------
    constant_rule : callable
        What becomes of each constant.
    substitutes : sequence of expressions, optional
        What becomes of each placeholder, by index.
    """

    def __init__(
        self, constant_rule: ConstantRule, substitutes: list[relax.Expr] | None = None
    ) -> None:
        self._constant_rule = constant_rule
        self._substitutes = substitutes
        self._vars: dict[relax.Var, relax.Var] = {}
        self._globals: dict[ir.GlobalVar, ir.GlobalVar] = {}
        self._count = 0

    def module(self, mod: tvm.IRModule) -> tvm.IRModule:
        """Rebuild ``main`` and everything it reaches, in order of appearance."""
        order: list[ir.GlobalVar] = []
        _reach(mod, mod.get_global_var("main"), order)
        for position, old in enumerate(order):
            name = ("main", "partition")[position] if position < 2 else f"function{position}"
            new = ir.GlobalVar(name)
            _update_type(new, old.ty)
            self._globals[old] = new
        functions = {}
        for old in order:
            func = mod[old]
            if isinstance(func, relax.Function):
                func = self.function(func)
            if func.attrs and "global_symbol" in func.attrs:
                func = func.with_attr("global_symbol", self._globals[old].name_hint)
            functions[self._globals[old]] = func
        return tvm.IRModule(functions)

    def function(self, func: relax.Function) -> relax.Function:
        """The function with new variables."""
        params = [self._rename(param) for param in func.params]
        body = self.expr(func.body)
        return relax.Function(params, body, func.ret_ty, func.is_pure, func.attrs)

    def expr(self, expr: relax.Expr) -> relax.Expr:
        """The expression, made of new ones.

        Raises
        ------
        MeasurementError
            When it is of a kind that no normalized module has.
        """
        match expr:
            case ir.Var():
                return self._vars.get(expr, expr)
            case ir.GlobalVar():
                return self._globals[expr]
            case ir.GenericConst():
                return self._constant_rule(expr, False)
            case ir.Call():
                return self._call(expr)
            case ir.Tuple():
                return ir.Tuple([self.expr(field) for field in expr.fields])
            case ir.TupleGetItem():
                return ir.TupleGetItem(self.expr(expr.tuple_value), expr.index)
            case relax.SeqExpr():
                return self._sequence(expr)
            case relax.Function():
                return self.function(expr)
            case relax.If():
                raise MeasurementError("a partition cannot hold control flow", value=str(expr))
            case _:
                return expr

    def _call(self, call: ir.Call) -> relax.Expr:
        index = placeholder_index(call)
        if index is not None and self._substitutes is not None:
            return self._substitutes[index]
        stays = keeps_integers(call)
        args = [
            self._constant_rule(arg, stays) if isinstance(arg, ir.GenericConst) else self.expr(arg)
            for arg in call.args
        ]
        return ir.Call(self.expr(call.op), args, call.attrs, call.ty_args, ret_ty=call.ty)

    def _sequence(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        blocks = []
        for block in seq.blocks:
            bindings = []
            for binding in block.bindings:
                value = self.expr(binding.value)
                var = self._rename(binding.var)
                if isinstance(binding, relax.MatchCast):
                    bindings.append(relax.MatchCast(var, value, binding.ty))
                else:
                    bindings.append(relax.VarBinding(var, value))
            kind = relax.DataflowBlock if isinstance(block, relax.DataflowBlock) else None
            blocks.append((kind or relax.BindingBlock)(bindings))
        result = relax.SeqExpr(blocks, self.expr(seq.body))
        _update_type(result, seq.ty)
        return result

    def _rename(self, var: relax.Var) -> relax.Var:
        kind = relax.DataflowVar if isinstance(var, relax.DataflowVar) else relax.Var
        self._vars[var] = kind(f"v{self._count}", var.ty)
        self._count += 1
        return self._vars[var]


def _reach(mod: tvm.IRModule, root: ir.GlobalVar, order: list[ir.GlobalVar]) -> None:
    """The global functions that ``root`` reaches, each once, in order of appearance."""
    if root in order:
        return
    order.append(root)
    called: list[ir.GlobalVar] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, ir.GlobalVar):
            called.append(expr)

    if isinstance(mod[root], relax.Function):
        relax.analysis.post_order_visit(mod[root], visit)
    for var in called:
        _reach(mod, var, order)
