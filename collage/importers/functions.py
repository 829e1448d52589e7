"""The public functions of a Relax module, each as a module of its own whose ``main`` it is.

What a public function calls in its module is a helper, and is inlined, so that it is searched as if
it stood there. Functions that are some backend's already (``Codegen``) stay as they are.
"""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter

import tvm
from tvm import ir, relax

from collage.backends.contract.errors import ModelError
from collage.rewrite.renaming import rename_functions

MAIN = "main"

_NOT_PUBLIC = ("Codegen", "Composite", "Primitive")
_NUMBERED = re.compile(r"_\d+$")


def public_functions(mod: tvm.IRModule) -> list[str]:
    """The names of the functions that whoever has a module may call, ``main`` first.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(8,)], lambda emit, x: relax.op.exp(x))
    >>> mod["decode"] = graph([(1,)], lambda emit, x: relax.op.exp(x))["main"]
    >>> public_functions(mod)
    ['main', 'decode']
    """
    names = [
        str(gv.name_hint)
        for gv, func in mod.functions.items()
        if isinstance(func, relax.Function) and (gv.name_hint == MAIN or _is_public(func))
    ]
    return sorted(names, key=lambda name: name != MAIN)


def function_alone(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """A module whose ``main`` is one function, with helpers inlined.

    Parameters
    ----------
    mod : tvm.IRModule
        Where it stands.
    name : str
        One of :func:`public_functions`.

    Returns
    -------
    tvm.IRModule
        ``mod`` itself, where there is nothing else in it.

    Raises
    ------
    ModelError
        When functions call themselves.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(8,)], lambda emit, x: relax.op.exp(x))
    >>> mod["decode"] = graph([(1,)], lambda emit, x: relax.op.abs(x))["main"]
    >>> alone = function_alone(mod, "decode")
    >>> [gv.name_hint for gv in alone.functions], alone["main"].params[0].ty.shape
    (['main'], R.shape([1]))
    """
    function = mod[name]
    helpers = {
        gv: func
        for gv, func in mod.functions.items()
        if isinstance(func, relax.Function) and not _stays(func)
    }
    if name == MAIN and len(helpers) == 1 and not _renamed_codegen(mod):
        return mod
    inlined = _inlined(function, helpers, name)
    public = {MAIN, *public_functions(mod)}
    kept = {gv: func for gv, func in mod.functions.items() if gv.name_hint not in public}
    alone = tvm.IRModule(
        {**kept, relax.GlobalVar(MAIN): inlined.with_attr("global_symbol", MAIN)}, attrs=mod.attrs
    )
    alone = rename_functions(alone, _renamed_codegen(alone))
    # What was inlined brings blocks of its own, and a graph is one block.
    alone = relax.transform.ConvertToDataflow(min_size=1)(relax.transform.Normalize()(alone))
    return relax.transform.DeadCodeElimination([MAIN])(alone)


def given_codegen(mod: tvm.IRModule) -> dict[str, str]:
    """By name, the functions that are some backend's already, and whose."""
    return {
        str(gv.name_hint): str(func.attrs["Codegen"])
        for gv, func in mod.functions.items()
        if isinstance(func, relax.Function) and func.attrs and "Codegen" in func.attrs
    }


def _is_public(func: relax.Function) -> bool:
    attrs = func.attrs or {}
    return "global_symbol" in attrs and not any(name in attrs for name in _NOT_PUBLIC)


def _stays(func: relax.Function) -> bool:
    """Whether a function is no helper: some backend compiles it as it is."""
    return bool(func.attrs) and "Codegen" in func.attrs


def _inlined(
    function: relax.Function, helpers: dict[ir.GlobalVar, relax.Function], name: str
) -> relax.Function:
    by_name = {str(gv.name_hint): func for gv, func in helpers.items()}
    calls: dict[str, set[str]] = {}
    waiting = [name]
    while waiting:
        caller = waiting.pop()
        if caller not in calls:
            calls[caller] = _called(by_name[caller]) & set(by_name)
            waiting += calls[caller]
    try:
        TopologicalSorter(calls).prepare()
    except CycleError as err:
        raise ModelError(
            f"function '{name}' calls functions that call themselves: only straight-line models "
            "can be optimized",
            value=name,
        ) from err
    needed = {callee: by_name[callee] for callee in calls if callee != name}
    return function.inline_functions(needed) if needed else function


def _called(function: relax.Function) -> set[str]:
    found: set[str] = set()

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, ir.GlobalVar):
            found.add(str(expr.op.name_hint))

    relax.analysis.post_order_visit(function, visit)
    return found


def _renamed_codegen(mod: tvm.IRModule) -> dict[str, str]:
    """New names for backends' functions that are called as partitions of ours would be."""
    codegen = given_codegen(mod)
    return {name: f"given_{name}" for name in codegen if _NUMBERED.search(name)}
