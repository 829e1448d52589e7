"""The rewriting machinery: a scope that rules look into, and the driver that applies them.

A rule is a plain function that is shown one call whose operands are already rewritten, and answers
the expression that should take its place, or None. Rules look upwards through
:class:`Scope`, so one rule reads like the identity that it applies. The driver walks the function
in order, rebuilds it, and starts again until no rule has anything left to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.backends.contract.errors import ModelError
from collage.backends.relax.static_shape import static_shape, tensor_shape

MAX_ROUNDS = 100
"""Far above what any model needs (deep ones take about 10): rules that undo each other end here."""

ANY_CALL = "*"
"""The key of rules that look at every operator call, after those of its own name."""

TUPLE_ITEM = "TupleGetItem"
"""The key of rules that look at tuple items; all others are keyed by operator name."""


class Scope:
    """The block under construction, as rules see it.

    Parameters
    ----------
    builder : relax.BlockBuilder
        The builder of the new function.
    functions : mapping of str to tvm.tirx.PrimFunc
        The module's tensor programs by name, for ``call_tir``.
    """

    def __init__(
        self, builder: relax.BlockBuilder, functions: Mapping[str, tvm.tirx.PrimFunc]
    ) -> None:
        self._builder = builder
        self._uses: dict[relax.Var, int] = {}
        self._output: relax.Expr | None = None
        self._name = ""
        self.functions = functions

    def emit(self, expr: relax.Expr, name: str = "") -> relax.Expr:
        """Bind an expression to a new variable; what needs no binding is returned as it is.

        Without a name of its own the variable is named after the binding that is being rewritten.
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
        self._output = self._builder.emit_output(output)

    def module(self, mod: tvm.IRModule) -> tvm.IRModule:
        """A module with the finished function for its ``main``, whose attributes it gets."""
        function = self._builder.get()["main"]
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
        """The same expression with its type inferred."""
        return self._builder.normalize(expr) if isinstance(expr, relax.Call) else expr

    def definition(self, expr: relax.Expr) -> relax.Expr:
        """What a variable is bound to; parameters and other expressions stand for themselves."""
        if not isinstance(expr, relax.Var):
            return expr
        bound = self._builder.lookup_binding(expr)
        return expr if bound is None else bound

    def call(self, expr: relax.Expr, *names: str) -> relax.Call | None:
        """The call behind ``expr`` when its operator is one of ``names`` (without ``relax.``)."""
        bound = self.definition(expr)
        return bound if op_name(bound) in names else None

    def comes_from(self, expr: relax.Expr, *names: str) -> bool:
        """Whether ``expr`` is the result of one of these operators."""
        return self.call(expr, *names) is not None

    def only_use(self, expr: relax.Expr) -> bool:
        """Whether one binding alone uses this variable, so that it may be taken into its user.

        A variable that a rule made in this round is not yet known, and the answer is no: it will be
        known in the next round.
        """
        return isinstance(expr, relax.Var) and self._uses.get(expr, 0) == 1

    def note_uses(self, var: relax.Expr, uses: int) -> None:
        """Record how many times the old variable that became ``var`` is used."""
        if isinstance(var, relax.Var):
            # A second old variable that becomes the same new one used the first: one use is gone.
            known = self._uses.get(var)
            self._uses[var] = uses if known is None else known + uses - 1


Rule = Callable[[Scope, Any], relax.Expr | None]
Rules = Mapping[str, tuple[Rule, ...]]


def op_name(expr: relax.Expr) -> str:
    """The operator's name without ``relax.``; empty for everything that is no operator call."""
    if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
        return str(expr.op.name).removeprefix("relax.")
    return ""


def is_tensor(expr: relax.Expr) -> bool:
    """Whether this is a tensor of known, static shape."""
    return hasattr(expr, "ty") and tensor_shape(expr) is not None


def dtype_of(expr: relax.Expr) -> str:
    """The element type of a tensor, as numpy names it."""
    return str(expr.ty.dtype.dtype)


def is_float(expr: relax.Expr) -> bool:
    """Whether a tensor's elements are floating-point numbers."""
    return "float" in dtype_of(expr)


def constant(expr: relax.Expr) -> np.ndarray | None:
    """The value of an inline constant, or None; not to be written to."""
    if not isinstance(expr, tvm.ir.GenericConst):
        return None
    try:
        value = np.from_dlpack(expr.value)
    except RuntimeError:
        # numpy's DLPack knows no bfloat16 and the like; TVM's own copy does.
        return np.asarray(expr.value.numpy())
    value.flags.writeable = False
    return value


def is_constant(expr: relax.Expr) -> bool:
    return isinstance(expr, tvm.ir.GenericConst)


def scalar(expr: relax.Expr) -> float | None:
    """The number in a constant of one element or in an immediate argument, or None."""
    if isinstance(expr, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return float(expr.value)
    if is_constant(expr) and int(np.prod(static_shape(expr))) == 1:
        return float(expr.value.numpy().reshape(()))
    return None


def make_constant(value: np.ndarray | float, dtype: str) -> relax.Expr:
    """An inline constant of exactly this dtype and shape."""
    array = np.asarray(value, dtype=dtype)
    return relax.const(array if array.flags.c_contiguous else array.copy(order="C"), dtype)


def operand_pair(call: relax.Call) -> tuple[relax.Expr, relax.Expr] | None:
    """(tensor, constant) of a binary call whose second operand is the only constant one."""
    left, right = call.args[0], call.args[1]
    return (left, right) if is_constant(right) and not is_constant(left) else None


def merge_rules(families: Sequence[Rules]) -> dict[str, tuple[Rule, ...]]:
    """One table from several; for one operator, earlier families are asked first."""
    merged: dict[str, tuple[Rule, ...]] = {}
    for family in families:
        for name, rules in family.items():
            merged[name] = merged.get(name, ()) + rules
    return merged


def apply_rules(mod: tvm.IRModule, rules: Rules) -> tvm.IRModule:
    """Rewrite ``main`` until no rule applies, dropping dead code on the way.

    Raises
    ------
    ModelError
        When ``main`` has control flow: there is no single dataflow block then.
    """
    for _ in range(MAX_ROUNDS):
        mod, changed = _one_round(mod, rules)
        if not changed:
            return mod
    raise AssertionError(f"normalization rules did not settle in {MAX_ROUNDS} rounds")


def map_constants(mod: tvm.IRModule, replace: Callable[[relax.Expr], relax.Expr]) -> tvm.IRModule:
    """Put ``replace(constant)`` in the place of every inline constant of ``main``."""
    return _one_round(mod, {}, replace)[0]


def _one_round(
    mod: tvm.IRModule, rules: Rules, replace: Callable[[relax.Expr], relax.Expr] | None = None
) -> tuple[tvm.IRModule, bool]:
    function = mod["main"]
    bindings = flat_bindings(function)
    output = function.body.body
    uses = count_uses(bindings, output)
    scope = Scope(relax.BlockBuilder(), primfuncs(mod))
    changed = False
    new: dict[relax.Var, relax.Expr] = {}

    def leaf(expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Var):
            return new.get(expr, expr)
        return replace(expr) if replace and is_constant(expr) else expr

    with scope.function(function):
        for param in function.params:
            new[param] = param
            scope.note_uses(param, uses.get(param, 0))
        for var, value in bindings:
            if var not in uses:
                changed = True
                continue
            scope.begin(str(var.name))
            expr = scope.typed(map_leaves(value, leaf))
            replaced = _first_answer(scope, expr, rules)
            changed = changed or replaced is not None
            new[var] = scope.emit(expr if replaced is None else replaced)
            scope.note_uses(new[var], uses[var])
        scope.finish(map_leaves(output, leaf))
    return scope.module(mod), changed


def flat_bindings(function: relax.Function) -> list[tuple[relax.Var, relax.Expr]]:
    """Every binding of a function without control flow, in order.

    Raises
    ------
    ModelError
        On a branch or an inner function.
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
    return {
        str(var.name_hint): func
        for var, func in mod.functions.items()
        if isinstance(func, tvm.tirx.PrimFunc)
    }


def count_uses(
    bindings: Sequence[tuple[relax.Var, relax.Expr]], output: relax.Expr
) -> dict[relax.Var, int]:
    """How often each live variable is used; dead ones are missing."""
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
    """The same expression over other variables and constants."""
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
    return relax.Call(expr.op, replaced, expr.attrs, expr.ty_args, expr.span)


def _first_answer(scope: Scope, expr: relax.Expr, rules: Rules) -> relax.Expr | None:
    key = TUPLE_ITEM if isinstance(expr, relax.TupleGetItem) else op_name(expr)
    for rule in rules.get(key, ()) + (rules.get(ANY_CALL, ()) if key else ()):
        answer = rule(scope, expr)
        if answer is not None:
            return answer
    return None
