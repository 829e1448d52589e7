"""What a binding of a function is, uses and computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import relax

from collage.backends.relax.static_shape import tensor_shape
from collage.search.op_kinds import OpKind, kind_of


def used_vars(expr: relax.Expr) -> list[relax.Var]:
    """The variables an A-normal expression uses, in order of appearance, nested tuples included."""
    found: list[relax.Var] = []
    stack = [expr]
    while stack:
        item = stack.pop()
        if isinstance(item, relax.Var):
            found.append(item)
        elif isinstance(item, relax.Call):
            stack.extend(reversed([item.op, *item.args]))
        elif isinstance(item, relax.Tuple):
            stack.extend(reversed(list(item.fields)))
        elif isinstance(item, relax.TupleGetItem):
            stack.append(item.tuple_value)
        elif isinstance(item, relax.Function | relax.If | relax.SeqExpr):
            found.extend(relax.analysis.free_vars(item))
    return found


def post_dfs(
    results: Sequence[relax.Var], by_var: Mapping[relax.Var, relax.Binding]
) -> list[relax.Binding]:
    """Bindings in post-dfs order from the results: each behind all that it uses.

    Parameters
    ----------
    results : sequence of relax.Var
        What is wanted.
    by_var : mapping of relax.Var to relax.Binding
        What defines each variable; others come from elsewhere.

    Returns
    -------
    list of relax.Binding
        Those that the results need.
    """
    order: list[relax.Binding] = []
    seen: set[relax.Var] = set()
    stack: list[tuple[relax.Var, bool]] = [(var, False) for var in reversed(results)]
    while stack:
        var, done = stack.pop()
        if done:
            order.append(by_var[var])
        elif var not in seen:
            seen.add(var)
            stack.append((var, True))
            below = [v for v in used_vars(by_var[var].value) if v in by_var and v not in seen]
            stack.extend((v, False) for v in reversed(below))
    return order


def op_name(binding: relax.Binding) -> str:
    """The operator of a binding, for example ``nn.conv2d`` or ``call_tir:<PrimFunc>``."""
    if isinstance(binding, relax.MatchCast):
        return "match_cast"
    value = binding.value
    if isinstance(value, relax.Call):
        op = value.op
        if isinstance(op, tvm.ir.Op):
            name = str(op.name).removeprefix("relax.")
            if name.startswith("call_") and value.args:
                callee = value.args[0]
                if isinstance(callee, tvm.ir.GlobalVar):
                    return f"{name}:{callee.name_hint}"
                if isinstance(callee, relax.ExternFunc):
                    return f"{name}:{callee.global_symbol}"
            return name
        if isinstance(op, tvm.ir.GlobalVar):
            return f"call:{op.name_hint}"
        if isinstance(op, relax.Var):
            return f"call:{op.name}"
        if isinstance(op, relax.ExternFunc):
            return f"call_packed:{op.global_symbol}"
        return "call"
    named = {
        relax.Tuple: "tuple",
        relax.TupleGetItem: "tuple_get_item",
        relax.ShapeExpr: "shape",
        tvm.ir.Constant: "constant",
        relax.Function: "function",
        relax.If: "if",
    }
    for kind, name in named.items():
        if isinstance(value, kind):
            return name
    if isinstance(value, relax.Var):
        return "var"
    return type(value).__name__.lower()


def op_kind(binding: relax.Binding, name: str, mod: tvm.IRModule | None) -> OpKind:
    """The kind of a binding's operator, as TVM's fusion sees it.

    Parameters
    ----------
    binding : relax.Binding
        A binding of an A-normal function.
    name : str
        Its :func:`op_name`.
    mod : tvm.IRModule, optional
        Tells the kinds of the PrimFuncs that are called, if they are annotated.

    Returns
    -------
    OpKind
        Opaque for a call that nothing tells of.
    """
    if name.startswith("call_tir:") and mod is not None:
        attrs = mod[name.removeprefix("call_tir:")].attrs
        if attrs and "op_pattern" in attrs:
            return OpKind(int(attrs["op_pattern"]))
    kind = kind_of(name)
    if kind is OpKind.ELEMWISE and not _keeps_a_shape(binding):
        return OpKind.BROADCAST
    return kind


def _keeps_a_shape(binding: relax.Binding) -> bool:
    """Whether some operand of a call has the result's shape, or there are none to compare."""
    shapes = [tensor_shape(arg) for arg in binding.value.args]
    result = tensor_shape(binding.var)
    return result is None or not any(shapes) or result in shapes
