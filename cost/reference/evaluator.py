"""Walks a Relax function and evaluates it with numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax

from collage.backends.errors import MeasurementError
from collage.cost.data import array_of
from collage.cost.reference.elementwise import ELEMENTWISE
from collage.cost.reference.fallback import evaluate_call
from collage.cost.reference.linear import LINEAR
from collage.cost.reference.reductions import REDUCTIONS
from collage.cost.reference.shapes import SHAPES
from collage.cost.reference.values import Array, OperatorTable, UnsupportedOperator, Value

OPERATORS: OperatorTable = {**ELEMENTWISE, **LINEAR, **REDUCTIONS, **SHAPES}


def evaluate(mod_or_func: tvm.IRModule | relax.Function, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a Relax function, computed in numpy.

    Parameters
    ----------
    mod_or_func : IRModule or relax.Function
        A module's ``main``, or a function that calls no global one. Calls to other functions,
        inner ``Composite`` functions among them, are followed; their attributes are ignored.
    inputs : sequence of ndarray
        One per parameter, of its shape and dtype.

    Returns
    -------
    list of ndarray
        Nested tuples are flattened, in order.

    Raises
    ------
    MeasurementError
        When an input does not fit, or an operator can be evaluated neither by numpy nor by TVM.
    """
    if isinstance(mod_or_func, tvm.IRModule):
        mod, func = mod_or_func, mod_or_func["main"]
    else:
        mod, func = None, mod_or_func
    _check_inputs(func, inputs)
    with np.errstate(all="ignore"):
        result = _Evaluator(mod).call_function(func, list(inputs))
    return _flatten(result)


def _check_inputs(func: relax.Function, inputs: Sequence[Array]) -> None:
    if len(func.params) != len(inputs):
        raise MeasurementError(f"{len(func.params)} inputs wanted, {len(inputs)} given")
    for param, array in zip(func.params, inputs, strict=True):
        wanted = (tuple(int(d) for d in param.ty.shape), str(param.ty.dtype))
        given = (array.shape, array.dtype.name)
        if wanted != given:
            raise MeasurementError(f"input '{param.name}' is {given}, not {wanted}")


def _flatten(value: Value) -> list[Array]:
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in _flatten(item)]
    return [np.ascontiguousarray(value).reshape(np.shape(value))]


class _Evaluator:
    def __init__(self, mod: tvm.IRModule | None) -> None:
        self.mod = mod
        self.env: dict[relax.Var, Value] = {}

    def call_function(self, func: relax.Function, args: list[Value]) -> Value:
        # Relax variables are unique objects, so inner functions may share one environment, and
        # see the variables they capture.
        self.env.update(zip(func.params, args, strict=True))
        return self.expr(func.body)

    def expr(self, expr: relax.Expr) -> Value:
        match expr:
            case relax.Var():
                return self.env[expr]
            case tvm.ir.GenericConst():
                return array_of(expr)
            case relax.SeqExpr():
                for block in expr.blocks:
                    for binding in block.bindings:
                        self.env[binding.var] = self.expr(binding.value)
                return self.expr(expr.body)
            case relax.Tuple():
                return tuple(self.expr(field) for field in expr.fields)
            case relax.TupleGetItem():
                return self.expr(expr.tuple_value)[expr.index]
            case relax.ShapeExpr():
                return tuple(int(d) for d in expr.values)
            case tvm.tirx.IntImm() | tvm.tirx.FloatImm():
                return expr.value
            case tvm.ir.StringImm():
                return str(expr.value)
            case relax.Function() | tvm.ir.GlobalVar():
                return expr
            case relax.Call():
                return self.call(expr)
            case _:
                raise MeasurementError(
                    f"the reference cannot evaluate a {type(expr).__name__}", value=str(expr)
                )

    def call(self, call: relax.Call) -> Value:
        args = [self.expr(arg) for arg in call.args]
        if not isinstance(call.op, tvm.ir.Op):
            return self.call_function(self._callee(call.op), args)
        name = str(call.op.name)
        operator = OPERATORS.get(name)
        if operator is not None:
            try:
                return _typed(operator(call, args), call)
            except UnsupportedOperator:
                pass  # A variant that only TVM knows.
        return evaluate_call(self.mod, call, args)

    def _callee(self, op: relax.Expr) -> relax.Function:
        callee = self.expr(op)
        if isinstance(callee, tvm.ir.GlobalVar) and self.mod is not None:
            callee = self.mod[callee]
        if not isinstance(callee, relax.Function):
            raise MeasurementError(f"the reference cannot call {op}", value=str(op))
        return callee


def _typed(value: Value, call: relax.Call) -> Value:
    """Give a result the dtype that the call's type promises, and check its shape."""
    if isinstance(value, np.ndarray | np.generic) and isinstance(call.ty, relax.TensorType):
        array = np.asarray(value)
        shape = tuple(int(d) for d in call.ty.shape)
        if array.shape != shape:
            raise MeasurementError(
                f"the reference's {call.op.name} gave shape {array.shape}, not {shape}"
            )
        return array.astype(str(call.ty.dtype), copy=False)
    return value
