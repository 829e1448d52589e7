"""Functions that compute nothing but call others, as data say: set aside while those are compiled.

Such a function may call itself, which TVM's passes over what is called are not made for.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm
import tvm_ffi
from tvm import relax

COURSE_ATTR = "collage_course"
"""Marks them."""


def set_aside(mod: tvm.IRModule) -> tuple[tvm.IRModule, dict[str, relax.Function]]:
    """A module without the functions that only call others, and those by name.

    Parameters
    ----------
    mod : tvm.IRModule
        Partitioned.

    Returns
    -------
    tuple of tvm.IRModule and dict of str to relax.Function
        The module itself, and nothing, where there are none.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(8,)], lambda emit, x: relax.op.exp(x))
    >>> set_aside(mod)[0] is mod
    True
    """
    courses = {
        str(var.name_hint): function
        for var, function in mod.functions_items()
        if isinstance(function, relax.Function) and COURSE_ATTR in (function.attrs or {})
    }
    if not courses:
        return mod, {}
    left = {v: f for v, f in mod.functions_items() if str(v.name_hint) not in courses}
    return tvm.IRModule(left, attrs=mod.attrs), courses


def put_back(mod: tvm.IRModule, courses: Mapping[str, relax.Function]) -> tvm.IRModule:
    """A module with what was set aside.

    Parameters
    ----------
    mod : tvm.IRModule
        What they call has the names that it had.
    courses : mapping of str to relax.Function
        As :func:`set_aside` gave them.

    Returns
    -------
    tvm.IRModule
        The module itself where nothing was.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(8,)], lambda emit, x: relax.op.exp(x))
    >>> mod["main"] = mod["main"].with_attr(COURSE_ATTR, True)
    >>> rest, courses = set_aside(mod)
    >>> [len(one.functions) for one in (rest, put_back(rest, courses))]
    [0, 1]
    """
    if not courses:
        return mod
    names = {str(var.name_hint): var for var in mod.get_global_vars()}
    for name, function in courses.items():
        names[name] = relax.GlobalVar(name)
        types = relax.FuncType([param.ty for param in function.params], function.ret_ty)
        relax.expr._update_type(names[name], types)
    functions = dict(mod.functions_items())
    for name, function in courses.items():
        functions[names[name]] = tvm_ffi.structural_map(
            function, [(tvm.ir.GlobalVar, lambda var: names.get(str(var.name_hint), var))]
        )
    return relax.transform.Normalize()(tvm.IRModule(functions, attrs=mod.attrs))
