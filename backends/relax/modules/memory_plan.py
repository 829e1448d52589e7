"""What a function's intermediate results take: TVM's own static plan of it, without any kernel.

The plan depends on what reads what and on shapes, not on how results are computed. So every
operator is taken for a call of something unknown, and TVM plans that, in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from collage.backends.relax.static_shape import leaf_types, static_shape, tensor_dtype

_VIEWS = {f"relax.{name}" for name in ("reshape", "expand_dims", "squeeze", "flatten")}


@dataclass(frozen=True)
class PlannedBytes:
    """What a call of a function takes besides its arguments.

    Attributes
    ----------
    inner : int
        Intermediate results, which share memory where their lives do not meet.
    outputs : int
        Results.
    """

    inner: int
    outputs: int


def tensor_bytes(ty: relax.Type) -> int:
    """What tensors of a type take, all parts of a tuple together.

    Examples
    --------
    >>> tensor_bytes(relax.TensorType((2, 3), "float16"))
    12
    """
    tensors = (leaf for leaf in leaf_types(ty) if isinstance(leaf, relax.TensorType))
    return sum(_bytes(static_shape(leaf), tensor_dtype(leaf)) for leaf in tensors)


def planned_bytes(function: relax.Function) -> PlannedBytes:
    """The memory of a straight-line function, as TVM plans it.

    Parameters
    ----------
    function : relax.Function
        Of static shapes. What it calls counts as one operator each.

    Examples
    --------
    Three results of 32 bytes, of which the first is dead when the third is computed:

    >>> from tvm.relax import op
    >>> from collage.testing import graph
    >>> def chain(emit, x):
    ...     for _ in range(3):
    ...         x = emit(op.exp(x))
    ...     return op.exp(x)
    >>> planned_bytes(graph([(8,)], chain)["main"])
    PlannedBytes(inner=64, outputs=32)
    """
    mod = _Skeleton().of(function)
    for planning in (
        relax.transform.ToNonDataflow(),
        relax.transform.CallTIRRewrite(),
        relax.transform.StaticPlanBlockMemory(),
    ):
        mod = planning(mod)
    inner = 0
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if _name(value) == "relax.memory.alloc_storage":
                inner += int(value.args[0].values[0])
    return PlannedBytes(inner, tensor_bytes(function.ret_ty))


class _Skeleton:
    """A function of the same shapes and lives in which every operator is unknown."""

    def __init__(self) -> None:
        self._builder = relax.BlockBuilder()
        self._new: dict[relax.Var, relax.Expr] = {}

    def of(self, function: relax.Function) -> tvm.IRModule:
        params = [relax.Var(str(param.name), param.ty) for param in function.params]
        self._new.update(zip(function.params, params, strict=True))
        with self._builder.function("main", params):
            for block in function.body.blocks:
                for binding in block.bindings:
                    if not isinstance(binding.value, relax.Function):
                        self._new[binding.var] = self._bound(binding.value)
            self._builder.emit_func_output(self._read(function.body.body))
        return self._builder.get()

    def _bound(self, value: relax.Expr) -> relax.Expr:
        if not isinstance(value, relax.Call) or tvm.ir.is_prim_expr(value):
            return self._builder.emit(self._read(value))
        read = [self._read(arg) for arg in value.args if _holds_tensors(arg)]
        # In a reshape's extents 0 stands for the one that was there.
        if _name(value) in _VIEWS and len(read) == 1 and 0 not in static_shape(value):
            return self._builder.emit(relax.op.reshape(read[0], static_shape(value)))
        outputs = leaf_types(value.ty)
        if not all(isinstance(leaf, relax.TensorType) for leaf in outputs):
            return self._builder.emit(relax.Tuple([]))
        arguments = relax.Tuple(_flat(self._builder, read))
        if not isinstance(value.ty, relax.TupleType):
            return self._builder.emit(relax.call_dps_packed("unknown", arguments, value.ty))
        results = self._builder.emit(relax.call_dps_packed("unknown", arguments, outputs))
        items = (relax.TupleGetItem(results, index) for index in range(len(outputs)))
        return self._builder.emit(_nested(value.ty, items))

    def _read(self, expr: relax.Expr) -> relax.Expr:
        match expr:
            case relax.Var():
                return self._new[expr]
            case relax.Tuple():
                return relax.Tuple([self._read(field) for field in expr.fields])
            case relax.TupleGetItem():
                return relax.TupleGetItem(self._read(expr.tuple_value), expr.index)
        return expr


def _flat(builder: relax.BlockBuilder, values: Sequence[relax.Expr]) -> list[relax.Expr]:
    """Tensors alone: what is in a tuple is read out of it."""
    found: list[relax.Expr] = []
    for value in values:
        if isinstance(value, relax.Tuple):
            found += _flat(builder, list(value.fields))
        elif isinstance(value.ty, relax.TupleType):
            items = [relax.TupleGetItem(value, i) for i in range(len(value.ty.fields))]
            found += _flat(builder, [builder.emit(item) for item in items])
        else:
            found.append(value)
    return found


def _nested(ty: relax.Type, items: Iterator[relax.Expr]) -> relax.Expr:
    if not isinstance(ty, relax.TupleType):
        return next(items)
    return relax.Tuple([_nested(field, items) for field in ty.fields])


def _holds_tensors(arg: relax.Expr) -> bool:
    """Whether an argument lives in memory that is planned: constants lie in the library."""
    if isinstance(arg, relax.Var):
        return isinstance(arg.ty, relax.TensorType | relax.TupleType)
    return isinstance(arg, relax.Tuple | relax.TupleGetItem)


def _name(value: relax.Expr) -> str:
    is_operator = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
    return str(value.op.name) if is_operator else ""


def _bytes(shape: Sequence[int], dtype: str) -> int:
    kind = tvm.DataType(dtype)
    return (math.prod(shape) * int(kind.bits) * int(kind.lanes) + 7) // 8
