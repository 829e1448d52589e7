"""Constants of external partitions become arguments, for backends that compute on a GPU.

TVM's virtual machine uploads every distinct constant of ``main`` to the device once, when a library
is loaded, whatever number of partitions use it. So a partition needs no copy of its own.
"""

from __future__ import annotations

from collections.abc import Collection

import tvm
from tvm import ir, relax

from collage.backends.contract.bound_constants import lift_partition


def lift_constants(mod: tvm.IRModule, backends: Collection[str]) -> tvm.IRModule:
    """Turn constants inside the partition functions of some backends into parameters.

    Parameters
    ----------
    mod : tvm.IRModule
        ``main`` calls functions with a ``Codegen`` attribute, which hold ``Composite`` functions.
    backends : collection of str
        The backends whose functions are rewritten.

    Returns
    -------
    tvm.IRModule
        Each constant of more than one element is a trailing parameter of its composite and of its
        partition function, in order of first use, and an argument where ``main`` calls it. Single
        elements stay: they are scalars that code generators read.

    Examples
    --------
    >>> from tvm.relax.dpl import is_op, wildcard
    >>> from collage.testing import constant, graph
    >>> mod = graph([(2, 8)], lambda _, x: relax.op.add(x, constant(8)))
    >>> add = ("mine.add", is_op("relax.add")(wildcard(), wildcard()))
    >>> mod = relax.transform.FuseOpsByPattern([add], annotate_codegen=True)(mod)
    >>> [len(f["fused_relax_add_mine"].params) for f in (mod, lift_constants(mod, ["mine"]))]
    [1, 2]
    """
    lifted: dict[ir.GlobalVar, tuple[ir.GlobalVar, list[ir.GenericConst]]] = {}
    functions: dict[ir.GlobalVar, ir.BaseFunc] = {}
    for gvar, func in mod.functions.items():
        attrs = func.attrs
        if attrs is None or "Codegen" not in attrs or str(attrs["Codegen"]) not in backends:
            continue
        function, constants = lift_partition(func)
        if constants:
            fresh = ir.GlobalVar(gvar.name_hint)
            relax.expr._update_type(
                fresh, relax.FuncType([p.ty for p in function.params], function.ret_ty)
            )
            lifted[gvar] = (fresh, constants)
            functions[fresh] = function
    if not lifted:
        return mod
    for gvar, func in mod.functions.items():
        if gvar not in lifted:
            functions[gvar] = _pass_constants(func, lifted)
    return relax.transform.Normalize()(tvm.IRModule(functions, attrs=mod.attrs))


def _pass_constants(
    func: ir.BaseFunc, lifted: dict[ir.GlobalVar, tuple[ir.GlobalVar, list[ir.GenericConst]]]
) -> ir.BaseFunc:
    """The function with the constants added to its calls of rewritten functions."""
    if not isinstance(func, relax.Function):
        return func
    blocks = []
    for block in func.body.blocks:
        bindings = []
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and value.op in lifted:
                callee, constants = lifted[value.op]
                args = [*value.args, *constants]
                value = relax.Call(callee, args, value.attrs, value.ty_args, value.span)
                binding = relax.VarBinding(binding.var, value)
            bindings.append(binding)
        blocks.append(type(block)(bindings))
    body = relax.SeqExpr(blocks, func.body.body)
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
