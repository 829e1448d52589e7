"""Other names for a module's functions."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
import tvm_ffi
from tvm import relax


def rename_functions(mod: tvm.IRModule, names: Mapping[str, str]) -> tvm.IRModule:
    """The same module with other names for some of its functions.

    Parameters
    ----------
    mod : tvm.IRModule
        Functions that call the renamed ones call them by their new names.
    names : mapping of str to str
        New names by old ones.

    Returns
    -------
    IRModule
        The module itself where it holds none of them.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(8,)], lambda emit, x: relax.op.exp(x))
    >>> mod = rename_functions(mod, {"main": "decode"})
    >>> [gv.name_hint for gv in mod.functions], mod["decode"].attrs["global_symbol"]
    (['decode'], 'decode')
    """
    fresh = {gv: _named(names[gv.name_hint], gv) for gv in mod.functions if gv.name_hint in names}
    if not fresh:
        return mod
    functions = {}
    for gv, function in mod.functions.items():
        function = tvm_ffi.structural_map(
            function, [(tvm.ir.GlobalVar, lambda var: fresh.get(var, var))]
        )
        if gv in fresh and "global_symbol" in (function.attrs or {}):
            function = function.with_attr("global_symbol", names[gv.name_hint])
        functions[fresh.get(gv, gv)] = function
    return tvm.IRModule(functions, attrs=mod.attrs)


def _named(name: str, like: tvm.ir.GlobalVar) -> tvm.ir.GlobalVar:
    var = relax.GlobalVar(name)
    relax.expr._update_type(var, like.ty)
    return var
