"""Walks a Relax function and evaluates it with numpy.

Half-precision values are float32 from the inputs to the outputs, and rounded once at the end: what
is computed is the function that was meant, which a fused kernel comes closer to than one that
stores every intermediate result. Another :class:`Arithmetic` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tvm
from tvm import relax

from collage.backends.contract.errors import MeasurementError, OutOfRangeError
from collage.backends.relax.constant_data import constant_data
from collage.backends.relax.static_shape import leaf_types, static_shape, tensor_dtype
from collage.cost.reference.arithmetic import MEANT, Arithmetic
from collage.cost.reference.fallback import Compiled
from collage.cost.reference.operators import OPERATORS
from collage.cost.reference.rounding import EPSILON, STEPS, off_by_sums, rounded
from collage.cost.reference.values import (
    WIDE,
    Array,
    UnsupportedOperator,
    Value,
    in_type,
    leaves,
    of_shape,
)

_IN_FLOAT32 = frozenset({"float32", *WIDE})


def evaluate(
    mod_or_func: tvm.IRModule | relax.Function,
    inputs: Sequence[Array],
    arithmetic: Arithmetic = MEANT,
    compiled: Compiled | None = None,
) -> list[Array]:
    """The outputs of a Relax function, computed in numpy.

    Parameters
    ----------
    mod_or_func : IRModule or relax.Function
        A module's ``main``, or a function that calls no global one. Calls to other functions,
        inner ``Composite`` functions among them, are followed; their attributes are ignored.
    inputs : sequence of ndarray
        One per parameter, of its shape and dtype.
    arithmetic : Arithmetic
        What intermediate values are kept in.
    compiled : Compiled, optional
        Of the same module, for several evaluations: what numpy lacks is compiled for the first.

    Returns
    -------
    list of ndarray
        Nested tuples are flattened, in order.

    Raises
    ------
    MeasurementError
        When an input does not fit, or an operator can be evaluated neither by numpy nor by TVM.
    OutOfRangeError
        When an index is computed from the inputs that lies outside of what it selects from.

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
        wide = [arithmetic.wide(array) for array in inputs]
        result = Evaluator(mod, arithmetic, compiled=compiled).call_function(func, wide)
        outputs = zip(leaves(result), leaf_types(func.ret_ty), strict=True)
        return [array.astype(tensor_dtype(ty), copy=False) for array, ty in outputs]


def evaluate_values(
    mod: tvm.IRModule, inputs: Sequence[Array], variables: Iterable[relax.Var]
) -> dict[relax.Var, Array]:
    """What variables of a module's ``main`` hold on the way, of their own dtypes.

    Parameters
    ----------
    mod : IRModule
        Its ``main`` is evaluated.
    inputs : sequence of ndarray
        One per parameter, of its shape and dtype.
    variables : iterable of relax.Var
        Tensors that ``main`` takes or binds; others are left out.

    Returns
    -------
    dict[relax.Var, Array]
        By variable, those that were come across.

    Raises
    ------
    MeasurementError
        As :func:`evaluate` does.
    """
    func = mod["main"]
    _check_inputs(func, inputs)
    with np.errstate(all="ignore"):
        evaluator = Evaluator(mod, MEANT, frozenset(variables))
        evaluator.call_function(func, [MEANT.wide(array) for array in inputs])
    return evaluator.kept


def _check_inputs(func: relax.Function, inputs: Sequence[Array]) -> None:
    if len(func.params) != len(inputs):
        raise MeasurementError(f"{len(func.params)} inputs wanted, {len(inputs)} given")
    for param, array in zip(func.params, inputs, strict=True):
        wanted = (static_shape(param), str(param.ty.dtype))
        given = (array.shape, array.dtype.name)
        if wanted != given:
            raise MeasurementError(f"input '{param.name}' is {given}, not {wanted}")


def _as_it_is(value: Value, _: relax.Expr) -> Value:
    """The value of an argument, unchanged."""
    return value


class Evaluator:
    """Evaluates functions, and remembers the variables that are wanted.

    Parameters
    ----------
    mod : IRModule or None
        Whose functions may be called.
    arithmetic : Arithmetic
        What values are kept in.
    wanted : frozenset of relax.Var
        What :attr:`kept` is to hold.
    compiled : Compiled, optional
        As :func:`evaluate` takes it.
    """

    def __init__(
        self,
        mod: tvm.IRModule | None,
        arithmetic: Arithmetic,
        wanted: frozenset[relax.Var] = frozenset(),
        compiled: Compiled | None = None,
    ) -> None:
        self.mod = mod
        self._compiled = compiled or Compiled(mod)
        self.kept: dict[relax.Var, Array] = {}
        self._wanted = wanted
        self.env: dict[relax.Var, Value] = {}
        self._arithmetic = arithmetic
        self._random = np.random.default_rng(arithmetic.dither)

    def call_function(self, func: relax.Function, args: list[Value]) -> Value:
        """What a function gives for arguments.

        Parameters
        ----------
        func : relax.Function
            The module's ``main``, or one that it calls.
        args : list
            A value for each of its parameters.

        Returns
        -------
        Value
            Its variables are forgotten again, but for those that are kept.
        """
        # Relax variables are unique objects, so inner functions may share one environment, and
        # see the variables they capture.
        self.env.update(zip(func.params, args, strict=True))
        for param in func.params:
            self._keep(param)
        result = self.expr(func.body)
        self._forget(func.params)
        return result

    def expr(self, expr: relax.Expr) -> Value:
        """The value of an expression whose variables are in the environment.

        Raises
        ------
        MeasurementError
            For an operator that can be evaluated neither by numpy nor by TVM, and for what is no
            straight line, such as a branch.
        """
        match expr:
            case relax.Var():
                return self.env[expr]
            case tvm.ir.GenericConst():
                return self._arithmetic.wide(constant_data(expr))
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
            self._keep(binding.var)
            self._forget(ending.get(index, ()))
        return self.expr(seq.body)

    def _keep(self, var: relax.Var) -> None:
        if var in self._wanted and isinstance(var.ty, relax.TensorType):
            self.kept[var] = np.asarray(self.env[var]).astype(str(var.ty.dtype), copy=False)

    def _forget(self, variables: Iterable[relax.Var]) -> None:
        for var in variables:
            self.env.pop(var, None)

    def call(
        self, call: relax.Call, operand: Callable[[Value, relax.Expr], Value] = _as_it_is
    ) -> Value:
        """The result of a call; what ``operand`` makes of each argument is computed with.

        Parameters
        ----------
        call : relax.Call
            Of an operator, or of a function of the module.
        operand : callable
            Takes an argument's value and its expression, and gives the value to use.

        Returns
        -------
        Value
            Of the call's type, as this evaluator's arithmetic stores it.

        Raises
        ------
        OutOfRangeError
            When it selects what there is not.
        """
        args = [operand(self.expr(arg), arg) for arg in call.args]
        if not isinstance(call.op, tvm.ir.Op):
            return self.call_function(self._callee(call.op), args)
        name = str(call.op.name)
        operator = OPERATORS.get(name)
        if name in STEPS and self._arithmetic.dither and str(call.args[0].ty.dtype) in EPSILON:
            # Which of two steps a value falls to that lies between them, sums alone decide.
            args[0] = off_by_sums(np.asarray(args[0]), self._form(call.args[0].ty), self._random)
        if _is_exact(call.ty):
            args = [in_type(value, arg.ty) for value, arg in zip(args, call.args, strict=True)]
        if operator is not None:
            try:
                return self._stored(of_shape(operator(call, args), call), call.ty)
            except UnsupportedOperator:
                pass  # A variant that only TVM knows.
            except IndexError as err:
                raise OutOfRangeError(f"{name} cannot be evaluated: {err}", value=name) from err
        return self._stored(self._compiled.evaluate(call, args), call.ty)

    def _stored(self, value: Value, ty: tvm.ir.Type) -> Value:
        """A result in the dtype that its type promises (wider where that is computed in a wider
        one), with as many digits as it is kept with."""
        if isinstance(value, tuple) and isinstance(ty, tvm.ir.TupleType):
            return tuple(self._stored(v, t) for v, t in zip(value, ty.fields, strict=True))
        if not isinstance(value, np.ndarray | np.generic) or not isinstance(ty, relax.TensorType):
            return value
        dtype = str(ty.dtype)
        # float32 in float64 comes out of operators as it went in, and is not narrowed on the way.
        wide = self._arithmetic.float32_in if dtype in _IN_FLOAT32 else WIDE.get(dtype, dtype)
        array: Array = np.asarray(value).astype(wide, copy=False)
        if dtype not in EPSILON or not self._arithmetic.stores:
            return array
        form = self._form(ty)
        if self._arithmetic.dither:
            noise = self._random.random(array.shape, np.float32) - np.float32(0.5)
            array = array * (1 + np.float32(EPSILON[form]) * noise)
        return rounded(array, form)

    def _form(self, ty: relax.TensorType) -> str:
        """The format that a tensor is kept in."""
        return self._arithmetic.float32_as if str(ty.dtype) == "float32" else str(ty.dtype)

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
