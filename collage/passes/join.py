"""Several partitioned modules into one: a public function each, over shared kernels and weights."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax

from collage.rewrite.renaming import rename_functions

_MAIN = "main"


def join_functions(modules: Mapping[str, tvm.IRModule]) -> tvm.IRModule:
    """One module of which every given one's ``main`` is a function.

    Equal tensor programs that partitions become, and equal constants, are made one when the whole
    is compiled.

    Parameters
    ----------
    modules : mapping of str to tvm.IRModule
        Partitioned, by the name that its ``main`` is to have.

    Returns
    -------
    tvm.IRModule
        What else the modules hold has the function's name before its own.

    Examples
    --------
    >>> from collage.testing import graph
    >>> one = graph([(8,)], lambda emit, x: relax.op.exp(x))
    >>> other = graph([(1,)], lambda emit, x: relax.op.exp(x))
    >>> [gv.name_hint for gv in join_functions({"prefill": one, "decode": other}).functions]
    ['prefill', 'decode']
    """
    functions: dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc] = {}
    for name, mod in modules.items():
        inner = {str(gv.name_hint) for gv in mod.functions} - {_MAIN}
        names = {_MAIN: name, **{old: f"{name}_{old}" for old in inner}}
        functions.update(rename_functions(mod, names).functions)
    return relax.transform.Normalize()(tvm.IRModule(functions))
