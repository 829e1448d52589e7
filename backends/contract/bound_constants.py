"""Constants of partitions as arguments of their functions, and bound to these by name.

In our own compiling, ``main`` hands constants over, see
``backends/relax/modules/lift_constants.py``. Under TVM's own ``RunCodegen`` nobody rewrites
``main``. There a stub stands before each function: TVM's loader of constants gives it those that it
names, once, and it adds them to what it is called with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax


class _Parameters:
    """Constants met so far, each with the parameter that replaces it."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.constants: list[ir.GenericConst] = []
        self.params: list[relax.Var] = []

    def replace(self, expr: relax.Expr) -> relax.Expr:
        """The expression with parameters for constants; calls and tuples are looked into."""
        if isinstance(expr, ir.GenericConst) and math.prod(expr.value.shape) > 1:
            return self._parameter(expr)
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.replace(field) for field in expr.fields])
        if isinstance(expr, relax.Call):
            args = [self.replace(arg) for arg in expr.args]
            return relax.Call(expr.op, args, expr.attrs, expr.ty_args, expr.span)
        return expr

    def _parameter(self, constant: ir.GenericConst) -> relax.Var:
        for known, param in zip(self.constants, self.params, strict=True):
            if known.same_as(constant):
                return param
        self.constants.append(constant)
        self.params.append(relax.Var(f"{self._prefix}{len(self.params)}", constant.ty))
        return self.params[-1]


def lift_partition(func: relax.Function) -> tuple[relax.Function, list[ir.GenericConst]]:
    """A partition function with its composites' constants of more than one element as trailing
    parameters, and those constants.

    Parameters
    ----------
    func : relax.Function
        Calls local functions, the composites.
    """
    lifted = _Parameters("w")
    composites: dict[relax.Var, tuple[relax.Var, list[ir.GenericConst]]] = {}
    bindings: list[relax.VarBinding] = []
    for binding in (b for block in func.body.blocks for b in block.bindings):
        var, value = binding.var, binding.value
        if isinstance(value, relax.Function):
            value, constants = _lift_composite(value)
            ty = relax.FuncType([p.ty for p in value.params], value.ret_ty)
            composites[var] = (relax.Var(var.name, ty), constants)
            var = composites[var][0]
        elif isinstance(value, relax.Call) and value.op in composites:
            callee, constants = composites[value.op]
            args = [lifted.replace(arg) for arg in (*value.args, *constants)]
            value = relax.Call(callee, args, value.attrs, value.ty_args, value.span)
        bindings.append(relax.VarBinding(var, value))
    return _with_parameters(func, bindings, lifted), lifted.constants


def _lift_composite(func: relax.Function) -> tuple[relax.Function, list[ir.GenericConst]]:
    lifted = _Parameters("k")
    bindings = [
        relax.VarBinding(binding.var, lifted.replace(binding.value))
        for block in func.body.blocks
        for binding in block.bindings
    ]
    return _with_parameters(func, bindings, lifted), lifted.constants


def _with_parameters(
    func: relax.Function, bindings: list[relax.VarBinding], lifted: _Parameters
) -> relax.Function:
    block = type(func.body.blocks[0])(bindings)
    body = relax.SeqExpr([block], func.body.body)
    params = [*func.params, *lifted.params]
    return relax.Function(params, body, func.ret_ty, func.is_pure, func.attrs)


def bind_constants(
    functions: Sequence[relax.Function], names: Mapping[Any, str], device_type: int
) -> tuple[list[relax.Function], list[tvm.runtime.Module]]:
    """Partition functions that take their constants as arguments, and stubs that hand these over.

    Parameters
    ----------
    functions : sequence of relax.Function
        As ``RunCodegen`` gives them, with constants inside.
    names : mapping of Constant to str
        Names of constants in the module's ``const_name_to_constant``.
    device_type : int
        DLPack's number of the device that constants are to lie on.

    Returns
    -------
    tuple[list[relax.Function], list[tvm.runtime.Module]]
        The functions in their order, and a module for each of those that have constants.
    """
    bound, stubs = [], []
    for function in functions:
        lifted, constants = lift_partition(function)
        if not constants:
            bound.append(function)
            continue
        symbol = str(function.attrs["global_symbol"])
        bound.append(lifted.with_attr("global_symbol", f"{symbol}_bound"))
        outputs = len(getattr(function.ret_ty, "fields", [function.ret_ty]))
        source = (
            _STUB.replace("@symbol@", symbol)
            .replace("@inputs@", str(len(function.params)))
            .replace("@constants@", str(len(constants)))
            .replace("@outputs@", str(outputs))
            .replace("@device@", str(device_type))
        )
        create = tvm_ffi.get_global_func("runtime.CSourceModuleCreate")
        used = [str(names[constant]) for constant in constants]
        stubs.append(create(source, "cc", [symbol], used))
    return bound, stubs


_STUB = (Path(__file__).parent / "templates" / "bound_constants.cc").read_text(encoding="utf-8")
