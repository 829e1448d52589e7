"""Walks a Relax function and evaluates it with numpy.

Half-precision values are float32 from the inputs to the outputs, and rounded once at the end: what
is computed is the function that was meant, which a fused kernel comes closer to than one that
stores every intermediate result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import tvm
from tvm import relax

from collage.backends.contract.errors import MeasurementError
from collage.backends.relax.static_shape import static_shape
from collage.cost.reference.attention import ATTENTION
from collage.cost.reference.elementwise import ELEMENTWISE
from collage.cost.reference.fallback import evaluate_call
from collage.cost.reference.linear import LINEAR
from collage.cost.reference.pools import POOLS
from collage.cost.reference.reductions import REDUCTIONS
from collage.cost.reference.shapes import SHAPES
from collage.cost.reference.values import (
    WIDE,
    Array,
    OperatorTable,
    UnsupportedOperator,
    Value,
    widen,
)
from collage.cost.workload.data import array_of

OPERATORS: OperatorTable = {
    **ATTENTION,
    **ELEMENTWISE,
    **LINEAR,
    **POOLS,
    **REDUCTIONS,
    **SHAPES,
}


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

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(3,)], lambda _, x: relax.op.nn.relu(x))
    >>> evaluate(mod, [np.array([-1.0, 0.5, 2.0], np.float32)])
    [array([0. , 0.5, 2. ], dtype=float32)]
    """
    if isinstance(mod_or_func, tvm.IRModule):
        mod, func = mod_or_func, mod_or_func["main"]
    else:
        mod, func = None, mod_or_func
    _check_inputs(func, inputs)
    with np.errstate(all="ignore"):
        result = _Evaluator(mod).call_function(func, [widen(array) for array in inputs])
        leaves = zip(_flatten(result), _dtypes(func.ret_ty), strict=True)
        return [array.astype(dtype, copy=False) for array, dtype in leaves]


def _check_inputs(func: relax.Function, inputs: Sequence[Array]) -> None:
    if len(func.params) != len(inputs):
        raise MeasurementError(f"{len(func.params)} inputs wanted, {len(inputs)} given")
    for param, array in zip(func.params, inputs, strict=True):
        wanted = (static_shape(param), str(param.ty.dtype))
        given = (array.shape, array.dtype.name)
        if wanted != given:
            raise MeasurementError(f"input '{param.name}' is {given}, not {wanted}")


def _flatten(value: Value) -> list[Array]:
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in _flatten(item)]
    return [np.ascontiguousarray(value).reshape(np.shape(value))]


def _dtypes(ty: tvm.ir.Type) -> list[str]:
    if isinstance(ty, tvm.ir.TupleType):
        return [leaf for field in ty.fields for leaf in _dtypes(field)]
    return [str(ty.dtype)]


class _Evaluator:
    def __init__(self, mod: tvm.IRModule | None) -> None:
        self.mod = mod
        self.env: dict[relax.Var, Value] = {}

    def call_function(self, func: relax.Function, args: list[Value]) -> Value:
        # Relax variables are unique objects, so inner functions may share one environment, and
        # see the variables they capture.
        self.env.update(zip(func.params, args, strict=True))
        result = self.expr(func.body)
        self._forget(func.params)
        return result

    def expr(self, expr: relax.Expr) -> Value:
        match expr:
            case relax.Var():
                return self.env[expr]
            case tvm.ir.GenericConst():
                return widen(array_of(expr))
            case relax.SeqExpr():
                return self._sequence(expr)
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

    def _sequence(self, seq: relax.SeqExpr) -> Value:
        """Values are dropped after their last use: a whole network's do not fit into memory."""
        bindings = [binding for block in seq.blocks for binding in block.bindings]
        last_use: dict[relax.Var, int] = {}
        kept = set(relax.analysis.free_vars(seq.body))
        for index, binding in enumerate(bindings):
            last_use[binding.var] = index
            used = relax.analysis.free_vars(binding.value)
            if isinstance(binding.value, relax.Function):
                kept.update(used)  # It may be called at any time.
            last_use.update((var, index) for var in used if var in last_use)
        ending: dict[int, list[relax.Var]] = {}
        for var, index in last_use.items():
            if var not in kept:
                ending.setdefault(index, []).append(var)
        for index, binding in enumerate(bindings):
            self.env[binding.var] = self.expr(binding.value)
            self._forget(ending.get(index, ()))
        return self.expr(seq.body)

    def _forget(self, variables: Iterable[relax.Var]) -> None:
        for var in variables:
            self.env.pop(var, None)

    def call(self, call: relax.Call) -> Value:
        args = [self.expr(arg) for arg in call.args]
        if not isinstance(call.op, tvm.ir.Op):
            return self.call_function(self._callee(call.op), args)
        name = str(call.op.name)
        operator = OPERATORS.get(name)
        if _is_exact(call.ty):
            args = [_rounded(value, arg.ty) for value, arg in zip(args, call.args, strict=True)]
        if operator is not None:
            try:
                return _typed(operator(call, args), call)
            except UnsupportedOperator:
                pass  # A variant that only TVM knows.
        return _widened(evaluate_call(self.mod, call, args))

    def _callee(self, op: relax.Expr) -> relax.Function:
        callee = self.expr(op)
        if isinstance(callee, tvm.ir.GlobalVar) and self.mod is not None:
            callee = self.mod[callee]
        if not isinstance(callee, relax.Function):
            raise MeasurementError(f"the reference cannot call {op}", value=str(op))
        return callee


def _is_exact(ty: tvm.ir.Type) -> bool:
    """Whether a result is of integers or booleans: an index, a comparison."""
    return isinstance(ty, relax.TensorType) and "float" not in str(ty.dtype)


def _rounded(value: Value, ty: tvm.ir.Type) -> Value:
    """A value with no more digits than its type has: equal ones must compare equal."""
    if isinstance(value, np.ndarray) and isinstance(ty, relax.TensorType):
        return widen(value.astype(str(ty.dtype), copy=False))
    return value


def _widened(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(_widened(item) for item in value)
    return widen(value) if isinstance(value, np.ndarray) else value


def _typed(value: Value, call: relax.Call) -> Value:
    """Give a result the dtype that the call's type promises (half precision stays wide), and check
    its shape."""
    if isinstance(value, np.ndarray | np.generic) and isinstance(call.ty, relax.TensorType):
        array = np.asarray(value)
        shape = static_shape(call)
        if array.shape != shape:
            raise MeasurementError(
                f"the reference's {call.op.name} gave shape {array.shape}, not {shape}"
            )
        dtype = str(call.ty.dtype)
        return array.astype(WIDE.get(dtype, dtype), copy=False)
    return value
