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
        What else the modules hold has the function's name before its own, and ``_`` behind it where
        that is some other function's name. It has the attributes of all, which are of one model.

    Examples
    --------
    >>> from collage.testing import graph
    >>> one = graph([(8,)], lambda emit, x: relax.op.exp(x))
    >>> other = graph([(1,)], lambda emit, x: relax.op.exp(x))
    >>> [gv.name_hint for gv in join_functions({"prefill": one, "decode": other}).functions]
    ['prefill', 'decode']
    """
    functions: dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc] = {}
    attrs: dict[str, object] = {}
    taken = set(modules)
    for name, mod in modules.items():
        names = {_MAIN: name}
        attrs.update(mod.attrs or {})
        for old in sorted({str(gv.name_hint) for gv in mod.functions} - {_MAIN}):
            names[old] = _free(f"{name}_{old}", taken)
            taken.add(names[old])
        functions.update(rename_functions(mod, names).functions)
    return relax.transform.Normalize()(tvm.IRModule(functions, attrs=attrs or None))


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
