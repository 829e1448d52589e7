"""Functions that TVM makes of fields of tuples alone, put back where they were.

A partition of another backend may give a tuple among its results, as recurrent layers do. TVM puts
the reading of a field of a field into a function of its own, and then finds no kernel in it.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax


def inline_reads() -> tvm.transform.Pass:
    """The pass that does it, between the fusion of operators and that of their kernels.

    Returns
    -------
    tvm.transform.Pass
        Over whole modules.

    Examples
    --------
    >>> inline_reads().info.name
    'InlineReads'
    """
    made: tvm.transform.Pass = tvm.transform.module_pass(_inlined, opt_level=0, name="InlineReads")
    return made


def _inlined(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    reads = {gv: func for gv, func in mod.functions.items() if _only_reads(func)}
    if not reads:
        return mod

    def inlined(call: tvm.ir.Call) -> Any:
        return _result(reads[call.op], call.args) if call.op in reads else call

    functions = {
        gv: tvm_ffi.structural_map(func, [(tvm.ir.Call, inlined)])
        if isinstance(func, relax.Function)
        else func
        for gv, func in mod.functions.items()
        if gv not in reads
    }
    normal: tvm.IRModule = relax.transform.Normalize()(tvm.IRModule(functions, attrs=mod.attrs))
    return normal


def _only_reads(func: tvm.ir.BaseFunc) -> bool:
    if not isinstance(func, relax.Function) or not func.attrs or "Primitive" not in func.attrs:
        return False
    values = [binding.value for block in func.body.blocks for binding in block.bindings]
    return all(isinstance(value, relax.TupleGetItem | relax.Var) for value in values)


def _result(func: relax.Function, args: Any) -> relax.Expr:
    """What the function gives, over what it is called with."""
    known: dict[relax.Expr, relax.Expr] = dict(zip(func.params, args, strict=True))

    def over_args(expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(over_args(expr.tuple_value), expr.index)
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([over_args(field) for field in expr.fields])
        return known[expr]

    for block in func.body.blocks:
        for binding in block.bindings:
            known[binding.var] = over_args(binding.value)
    return over_args(func.body.body)
