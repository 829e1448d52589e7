"""Kernels named by what they compute, so that the same one is the same text in any module.

A module numbers its kernels as they come, and names their tensors by its variables. What was
compiled as a part of a candidate is known again in a whole model by its text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Var

_NUMBER = re.compile(r"\d+(?=_|$)")
_DIGITS = 10


def name_by_content(mod: tvm.IRModule) -> tvm.IRModule:
    """A module whose scheduled kernels are named by their content.

    Parameters
    ----------
    mod : tvm.IRModule
        Nobody outside of it calls its kernels.

    Returns
    -------
    tvm.IRModule
        Of kernels that are the same one is left.

    Examples
    --------
    >>> from collage.testing import graph
    >>> def net(emit, x):
    ...     return emit(relax.op.nn.relu(emit(relax.op.exp(x))))
    >>> mod = relax.transform.LegalizeOps()(graph([(8,)], net))
    >>> names = [var.name_hint for var in name_by_content(mod).get_global_vars()]
    >>> sorted(name.rpartition("_")[0] or name for name in names)
    ['main', 'relu', 'tir_exp']
    """
    kernels = {
        var: func
        for var, func in mod.functions_items()
        if isinstance(func, tirx.PrimFunc) and "global_symbol" not in (func.attrs or {})
    }
    taken = {var.name_hint: func for var, func in mod.functions_items() if var not in kernels}
    names: dict[tvm.ir.GlobalVar, tvm.ir.GlobalVar] = {}
    made: dict[str, tvm.ir.GlobalVar] = {}
    for var, func in kernels.items():
        name = _name(var.name_hint, func, taken)
        taken[name] = func
        names[var] = made.setdefault(name, _like(name, var))
    functions = {
        names.get(var, var): _with_plain_buffers(func)
        if var in kernels
        else tvm_ffi.structural_map(func, [(tvm.ir.GlobalVar, lambda v: names.get(v, v))])
        for var, func in mod.functions_items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _with_plain_buffers(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel whose tensors are numbered: their names are those of a network's variables."""
    numbered = {param: Var(f"p{n}", param.ty) for n, param in enumerate(func.params)}

    def renamed(var: Var) -> Var:
        if var not in numbered and isinstance(var.ty, tirx.BufferType):
            numbered[var] = Var(f"b{len(numbered)}", var.ty)
        return numbered.get(var, var)

    return tvm_ffi.structural_map(func, [(Var, renamed)])


def _name(hint: str, func: tirx.PrimFunc, taken: Mapping[str, tvm.ir.BaseFunc]) -> str:
    digest = format(tvm_ffi.structural_hash(func, map_free_vars=True) % 2**64, "016x")
    stem = f"{_NUMBER.sub('', hint)}_{digest[:_DIGITS]}"
    name, number = stem, 0
    while name in taken and not tvm_ffi.structural_equal(taken[name], func, map_free_vars=True):
        number += 1
        name = f"{stem}_{number}"
    return name


def _like(name: str, var: tvm.ir.GlobalVar) -> tvm.ir.GlobalVar:
    made = relax.GlobalVar(name)
    relax.expr._update_type(made, var.ty)
    return made
