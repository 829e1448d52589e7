"""One operator through TVM's plain LLVM code, for those without a numpy implementation.

Unscheduled, with TVM's own legalization: no code of any backend takes part, so the result is still
independent of what is measured, only slow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.backends.contract.errors import MeasurementError, last_line
from collage.cost.reference.values import Value


def _parametrize(arg: relax.Expr, params: list[relax.Var], *, wide: bool) -> relax.Expr:
    """Turn every tensor in a call's argument into a parameter, of float32 for half precision."""
    if isinstance(arg, relax.Tuple):
        return relax.Tuple([_parametrize(field, params, wide=wide) for field in arg.fields])
    if not isinstance(arg.ty, relax.TensorType):
        return arg
    ty = arg.ty
    if wide and str(ty.dtype) in ("float16", "bfloat16"):
        ty = relax.TensorType(ty.shape, "float32")
    params.append(relax.Var(f"p{len(params)}", ty))
    return params[-1]


def _leaves(value: Value) -> list[Value]:
    if isinstance(value, tuple) and not all(isinstance(item, int) for item in value):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


class Compiled:
    """What TVM has compiled of a module's calls, each once however often it is evaluated.

    Parameters
    ----------
    mod : IRModule or None
        Holds the PrimFuncs that a ``call_tir`` refers to.
    """

    def __init__(self, mod: tvm.IRModule | None) -> None:
        self._mod = mod
        self._mains: dict[relax.Call, tuple[Callable[..., Any], list[relax.Var]]] = {}

    def evaluate(self, call: relax.Call, args: list[Value]) -> Value:
        """Run one call with TVM.

        Parameters
        ----------
        call : relax.Call
            Of an operator, or a ``call_tir``.
        args : list
            The evaluated arguments.

        Returns
        -------
        Value
            As numpy arrays, nested as the call's type is.

        Raises
        ------
        MeasurementError
            When TVM cannot run it either; ``value`` is the operator's name.
        """
        name = call.op.name if isinstance(call.op, tvm.ir.Op) else str(call.op)
        arrays = [a for arg in args for a in _leaves(arg) if isinstance(a, np.ndarray)]
        try:
            if call not in self._mains:
                self._mains[call] = _compiled(self._mod, call)
            main, params = self._mains[call]
            if len(params) != len(arrays):
                raise MeasurementError(f"the reference cannot take {name} apart", value=name)
            # The evaluator keeps values wide; TVM wants what the types say.
            typed = [
                a.astype(str(p.ty.dtype), copy=False) for p, a in zip(params, arrays, strict=True)
            ]
            return _to_numpy(main(*(tvm.runtime.tensor(a) for a in typed)))
        except (RuntimeError, TypeError, ValueError, AttributeError) as err:
            raise MeasurementError(
                f"the reference cannot run {name}: {last_line(err)}", value=name
            ) from err


def _compiled(
    mod: tvm.IRModule | None, call: relax.Call
) -> tuple[Callable[..., Any], list[relax.Var]]:
    """A function that computes a call, and its parameters."""
    params: list[relax.Var] = []
    # A tensor program is for its own types; an operator is for any, and rounds less in float32.
    wide = isinstance(call.op, tvm.ir.Op) and call.op.name != "relax.call_tir"
    new_args = [_parametrize(arg, params, wide=wide) for arg in call.args]
    body = relax.Call(call.op, new_args, call.attrs, call.ty_args)
    # Not in a function of a builder: those of all threads are on one stack.
    call_typed = relax.BlockBuilder().normalize(body)
    value = relax.Var("value", call_typed.ty)
    block = relax.BindingBlock([relax.VarBinding(value, call_typed)])
    main = relax.Function(params, relax.SeqExpr([block], value), call_typed.ty)
    module = tvm.IRModule({"main": main.with_attr("global_symbol", "main")})
    # Those alone that it refers to: others would be compiled again for each call.
    for arg in call.args:
        if mod is not None and isinstance(arg, tvm.ir.GlobalVar):
            module[arg] = mod[arg]
    # Unlike what is compared with it: an error of LLVM's vectors would be on both sides.
    plain = tvm.target.Target({"kind": "llvm", "opt-level": 1})
    machine = relax.VirtualMachine(tvm.compile(module, target=plain), tvm.cpu())
    return machine["main"], params


def _to_numpy(value: object) -> Value:
    if isinstance(value, tvm.runtime.Tensor):
        return value.numpy()
    return tuple(_to_numpy(item) for item in value)  # type: ignore[attr-defined]
