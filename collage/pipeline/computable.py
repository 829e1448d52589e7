"""What no backend can compute is said before anything is measured, all of it at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import tvm
from tvm import relax
from tvm.ir import Op

from collage.backends.contract import TargetSet
from collage.backends.contract.errors import ModelError, TargetError
from collage.backends.relax.static_shape import leaf_types, tensor_shape
from collage.importers.functions import given_codegen
from collage.search.dataflow import DataflowGraph, OpKind

_WITHOUT_LEGALIZATION = frozenset(
    f"relax.{name}"
    for name in (
        *("sort", "argsort", "topk", "cumsum", "cumprod", "call_tir", "call_tir_inplace"),
        *("call_dps_packed", "call_pure_packed", "call_inplace_packed", "ewise_fma"),
        *("invoke_closure", "invoke_pure_closure", "builtin.stop_lift_params"),
    )
)
"""Operators that TVM compiles in another way than the others."""

_MOST_NAMED = 5


def require_computable(graph: DataflowGraph, name: str) -> None:
    """Refuse a model with operators that nothing can compile.

    Parameters
    ----------
    graph : DataflowGraph
        Of the normalized module.
    name : str
        The model's.

    Raises
    ------
    ModelError
        Names every such operator, how often it occurs and where; ``value`` is their names.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.testing import graph
    >>> mod = graph([(8,)], lambda emit, x: op.nonzero(x))
    >>> require_computable(DataflowGraph.from_function(mod["main"], mod), "net")
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.ModelError: no backend can compute ...
    """
    found: dict[str, list[str]] = defaultdict(list)
    for index, binding in enumerate(graph.bindings):
        if graph.op_kind(index) in (OpKind.HOST, OpKind.TUPLE):
            continue
        reason = _obstacle(binding.value, binding.var)
        if reason:
            found[f"{graph.op_name(index)}, {reason}"].append(str(binding.var.name))
    if not found:
        return
    listed = "; ".join(f"{what} ({_named(where)})" for what, where in found.items())
    raise ModelError(
        f"no backend can compute these operators of '{name}': {listed}; replace them before the "
        "export, or cut the model there and compute them outside",
        value=sorted({what.split(",")[0] for what in found}),
    )


def _obstacle(value: relax.Expr, var: relax.Var) -> str:
    """Why a binding cannot be computed, or nothing."""
    if not all(map(_is_static, leaf_types(var.ty))):
        return "whose shape depends on data"
    if not isinstance(value, relax.Call) or not isinstance(value.op, Op):
        return ""
    compiled = any(value.op.get_attr(name) is not None for name in ("FLegalize", "FCallPacked"))
    known = compiled or str(value.op.name) in _WITHOUT_LEGALIZATION
    return "" if known else "which TVM cannot compile"


def _is_static(ty: tvm.ir.Type) -> bool:
    return not isinstance(ty, relax.TensorType) or tensor_shape(ty) is not None


def _named(where: Sequence[str]) -> str:
    shown = ", ".join(where[:_MOST_NAMED])
    more = len(where) - _MOST_NAMED
    return shown if more <= 0 else f"{shown} and {more} more"


def require_codegen_targets(mod: tvm.IRModule, function: str, targets: TargetSet) -> None:
    """Refuse functions that are a backend's already where that backend is no target.

    Parameters
    ----------
    mod : tvm.IRModule
        The normalized module of one function.
    function : str
        Its name.
    targets : TargetSet
        What was given.

    Raises
    ------
    TargetError
        Names the function and its backend.

    Examples
    --------
    >>> from tvm.relax.dpl import is_op, wildcard
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> mod = graph([(8,)], lambda emit, x: relax.op.exp(x))
    >>> mine = [("vax.exp", is_op("relax.exp")(wildcard()))]
    >>> mod = relax.transform.FuseOpsByPattern(mine, annotate_codegen=True)(mod)
    >>> require_codegen_targets(mod, "main", resolve_targets(["llvm"]))
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.TargetError: 'main' calls 'fused_relax_exp_vax', which ...
    """
    for name, backend in given_codegen(mod).items():
        if backend not in {target.backend for target in targets}:
            raise TargetError(
                f"'{function}' calls '{name}', which is a function of the backend '{backend}' "
                f"already: name that one among the targets ({', '.join(targets.names)}), or give "
                "the module as it was before it was partitioned",
                value=backend,
            )
