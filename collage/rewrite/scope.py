"""A function under reconstruction: its bindings in order, and the scope in which rules look up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import tvm
import tvm_ffi
from tvm import relax

from collage.backends.contract.errors import ModelError
from collage.rewrite.digits import Digits
from collage.rewrite.expressions import op_name


class Scope:
    """The block under construction, as rules see it.

    Parameters
    ----------
    builder : relax.BlockBuilder
        The builder of the new function.
    functions : mapping of str to tvm.tirx.PrimFunc
        The module's tensor programs by name, for ``call_tir``.
    digits : Digits, optional
        What is known of constants.

    Examples
    --------
    A rule that looks up, and makes more than one operator:

    >>> from collage.rewrite import apply_rules
    >>> from collage.testing import graph
    >>> def negated(scope, call):
    ...     if not scope.comes_from(call.args[0], "exp"):
    ...         return None
    ...     return relax.op.nn.relu(scope.emit(relax.op.negative(call.args[0])))
    >>> mod = graph([(8,)], lambda emit, x: relax.op.abs(emit(relax.op.exp(x))))
    >>> mod = apply_rules(mod, {"abs": (negated,)})
    >>> [op_name(value) for var, value in flat_bindings(mod["main"]) if op_name(value)]
    ['exp', 'negative', 'nn.relu']
    """

    def __init__(
        self,
        builder: relax.BlockBuilder,
        functions: Mapping[str, tvm.tirx.PrimFunc],
        digits: Digits | None = None,
    ) -> None:
        self._builder = builder
        self._uses: dict[relax.Var, int] = {}
        self._output: relax.Expr | None = None
        self._name = ""
        self.functions = functions
        self.digits = Digits() if digits is None else digits

    def emit(self, expr: relax.Expr, name: str = "") -> relax.Expr:
        """A new variable bound to an expression; variables, constants and shapes stay themselves.

        Parameters
        ----------
        expr : relax.Expr
            Over variables of the new function.
        name : str
            The variable's; by default that of the binding that is being rewritten.

        Returns
        -------
        relax.Expr
            The variable, or the expression itself.
        """
        if isinstance(expr, relax.Var | tvm.ir.GenericConst | relax.ShapeExpr):
            return expr
        return self._builder.emit(expr, name_hint=name or self._name)

    @contextmanager
    def function(self, like: relax.Function) -> Iterator[None]:
        """Build a function ``main`` with the parameters of another, as one dataflow block."""
        with self._builder.function("main", params=list(like.params)):
            with self._builder.dataflow():
                yield
            self._builder.emit_func_output(self._output)

    def finish(self, output: relax.Expr) -> None:
        """Make ``output`` the function's result; the block ends here."""
        name = str(output.name) if isinstance(output, relax.Var) else ""
        self._output = self._builder.emit_output(output, name_hint=name)

    def module(self, mod: tvm.IRModule) -> tvm.IRModule:
        """A module with the finished function for its ``main``, whose attributes it gets."""
        function = _without_alias(self._builder.get()["main"])
        attrs = mod["main"].attrs
        result = mod.clone()
        result.update_func(
            mod.get_global_var("main"), function.with_attrs(dict(attrs)) if attrs else function
        )
        return result

    def begin(self, name: str) -> None:
        """Say which variable's binding comes next."""
        self._name = name

    def typed(self, expr: relax.Expr) -> relax.Expr:
        """The same expression with its type, which is inferred unless it has one already."""
        if not isinstance(expr, relax.Call) or _has_type(expr):
            return expr
        return self._builder.normalize(expr)

    def definition(self, expr: relax.Expr) -> relax.Expr:
        """What a variable is bound to; parameters and other expressions stand for themselves."""
        if not isinstance(expr, relax.Var):
            return expr
        bound = self._builder.lookup_binding(expr)
        return expr if bound is None else bound

    def call(self, expr: relax.Expr, *names: str) -> relax.Call | None:
        """The call behind an expression, or None where that is no call of these operators.

        Parameters
        ----------
        expr : relax.Expr
            A variable of the new function, or the call itself.
        *names : str
            Operators, without ``relax.``.

        Returns
        -------
        relax.Call or None
            Variables are seen through.
        """
        bound = self.definition(expr)
        return bound if op_name(bound) in names else None

    def comes_from(self, expr: relax.Expr, *names: str) -> bool:
        """Whether an expression is the result of one of these operators.

        Parameters
        ----------
        expr, *names
            As :meth:`call` takes them.

        Returns
        -------
        bool
            Variables are seen through.
        """
        return self.call(expr, *names) is not None

    def only_use(self, expr: relax.Expr) -> bool:
        """Whether one binding alone uses this variable, so that it may be taken into its user.

        A variable that a rule made in this round is not yet known, and the answer is no: it will be
        known in the next round.
        """
        return isinstance(expr, relax.Var) and self._uses.get(expr, 0) == 1

    def note_uses(self, var: relax.Expr, uses: int) -> None:
        """Record how many times an old variable is used.

        Parameters
        ----------
        var : relax.Expr
            What the old variable became.
        uses : int
            In the old function.
        """
        if isinstance(var, relax.Var):
            # A second old variable that becomes the same new one used the first: one use is gone.
            known = self._uses.get(var)
            self._uses[var] = uses if known is None else known + uses - 1


def _without_alias(function: relax.Function) -> relax.Function:
    """The function whose result is its last variable itself, and keeps its name.

    A builder makes the result a second name for a variable of the block, and the pass that leaves
    one of the two keeps that name: no node of the model is called so.
    """
    (block,) = function.body.blocks
    *bindings, last = block.bindings
    if not isinstance(last.value, relax.expr.DataflowVar):
        return function
    inner, output = last.value, relax.Var(last.value.name, last.value.ty)
    block = tvm_ffi.structural_map(
        relax.DataflowBlock(bindings),
        [(relax.expr.DataflowVar, lambda var: output if var.same_as(inner) else var)],
    )
    body = relax.SeqExpr([block], output)
    relax.expr._update_type(body, output.ty)
    return relax.Function(
        list(function.params), body, function.ret_ty, bool(function.is_pure), function.attrs
    )


def flat_bindings(function: relax.Function) -> list[tuple[relax.Var, relax.Expr]]:
    """Every binding of a function without control flow, in order.

    Raises
    ------
    ModelError
        On a branch or an inner function.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(8,)], lambda emit, x: relax.op.abs(emit(relax.op.exp(x))))
    >>> [op_name(value) for var, value in flat_bindings(mod["main"])]
    ['exp', 'abs']
    """
    found: list[tuple[relax.Var, relax.Expr]] = []
    for block in function.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.If | relax.Function):
                raise ModelError(
                    f"'{binding.var.name}' is control flow (a branch or an inner function); only "
                    "straight-line models can be optimized",
                    value=str(binding.var.name),
                )
            found.append((binding.var, value))
    return found


def primfuncs(mod: tvm.IRModule) -> dict[str, tvm.tirx.PrimFunc]:
    """A module's tensor programs by name.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(8,)], lambda emit, x: relax.op.exp(x))
    >>> len(primfuncs(mod)), len(primfuncs(relax.transform.LegalizeOps()(mod)))
    (0, 1)
    """
    return {
        str(var.name_hint): func
        for var, func in mod.functions.items()
        if isinstance(func, tvm.tirx.PrimFunc)
    }


def count_uses(
    bindings: Sequence[tuple[relax.Var, relax.Expr]], output: relax.Expr
) -> dict[relax.Var, int]:
    """How often each live variable is used; dead ones are missing.

    Parameters
    ----------
    bindings : sequence of (relax.Var, relax.Expr)
        See :func:`flat_bindings`.
    output : relax.Expr
        The function's result.

    Returns
    -------
    dict[relax.Var, int]
        By variable, the output's use included.

    Examples
    --------
    >>> from collage.testing import graph
    >>> main = graph([(8,)], lambda emit, x: relax.op.add(x, emit(relax.op.exp(x))))["main"]
    >>> uses = count_uses(flat_bindings(main), main.body.body)
    >>> uses[main.params[0]]
    2
    """
    uses: dict[relax.Var, int] = {}

    def use(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Var):
            uses[expr] = uses.get(expr, 0) + 1
        else:
            for child in _children(expr):
                use(child)

    use(output)
    for var, value in reversed(bindings):
        if var in uses:
            use(value)
    return uses


def _children(expr: relax.Expr) -> Sequence[relax.Expr]:
    if isinstance(expr, relax.Call):
        return list(expr.args)
    if isinstance(expr, relax.Tuple):
        return list(expr.fields)
    if isinstance(expr, relax.TupleGetItem):
        return [expr.tuple_value]
    return []


def map_leaves(expr: relax.Expr, leaf: Callable[[relax.Expr], relax.Expr]) -> relax.Expr:
    """The same expression over other variables and constants.

    Parameters
    ----------
    expr : relax.Expr
        A binding's value.
    leaf : callable
        Gives what takes the place of a variable or constant.

    Returns
    -------
    relax.Expr
        The expression itself where no leaf changed. A call of which variables alone changed, for
        others of the same types, keeps its type: to infer one takes a millisecond for a
        convolution, and every round of every table of rules would do so for every operator.

    Examples
    --------
    >>> x, y = (relax.Var(name, relax.TensorType((8,), "float32")) for name in "xy")
    >>> changed = map_leaves(relax.op.add(x, x), lambda leaf: y)
    >>> [str(argument.name) for argument in changed.args]
    ['y', 'y']
    """
    children = _children(expr)
    if not children:
        return leaf(expr)
    replaced = [map_leaves(child, leaf) for child in children]
    if all(a.same_as(b) for a, b in zip(children, replaced, strict=True)):
        return expr
    if isinstance(expr, relax.Tuple):
        return relax.Tuple(replaced)
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(replaced[0], expr.index)
    call = relax.Call(expr.op, replaced, expr.attrs, expr.ty_args, expr.span)
    if _has_type(expr) and all(map(_is_alike, children, replaced)):
        relax.expr._update_type(call, expr.ty)
    return call


def _has_type(expr: relax.Expr) -> bool:
    return type(expr.ty) is not tvm.ir.Type


def _is_alike(old: relax.Expr, new: relax.Expr) -> bool:
    """Whether no type can depend on which of the two it is: what a constant is may decide one."""
    if old.same_as(new):
        return True
    if not isinstance(old, relax.Var) or not isinstance(new, relax.Var):
        return False
    return bool(old.ty.same_as(new.ty)) or bool(tvm_ffi.structural_equal(old.ty, new.ty))
