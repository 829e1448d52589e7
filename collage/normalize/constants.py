"""Constant folding with numpy, and constants in one canonical shape.

TVM's own ``FoldConstant`` compiles every operator that it folds; on a network's weights that takes
minutes. What importers leave on constants is a handful of operators that numpy does at once.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage import rewrite as rw
from collage.backends.relax.static_shape import static_shape
from collage.cost.reference.operators import OPERATORS
from collage.cost.reference.operators.shapes import gather_elements
from collage.cost.reference.rounding import HALF
from collage.rewrite import ANY_CALL, TUPLE_ITEM, Rules, Scope

_MAX_MATERIALIZED = 1 << 20
"""Elements up to which a folded constant may be larger than its operands together."""

_HEAD_ELEMENTS = 64

_FEW = 1 << 12

_Fold = Callable[..., np.ndarray]

_TAKE_TUPLES = ("concat", "stack", "index_tensor")


def _axes(call: relax.Call) -> list[int] | None:
    return None if call.attrs.axes is None else [int(a) for a in call.attrs.axes]


def _axis(call: relax.Call) -> int:
    return int(call.attrs.axis)


def _reshape(call: relax.Call, x: np.ndarray) -> np.ndarray:
    return x.reshape(static_shape(call))


def _reduction(function: Callable[..., np.ndarray]) -> _Fold:
    def fold(call: relax.Call, x: np.ndarray) -> np.ndarray:
        axes = None if call.attrs.axis is None else tuple(int(a) for a in call.attrs.axis)
        return np.asarray(function(x, axis=axes, keepdims=bool(call.attrs.keepdims)))

    return fold


def _added_up(function: Callable[..., np.ndarray]) -> _Fold:
    """In float64: along outer axes numpy adds up one by one, and a norm of weights that is off has
    every element that it scales off by the same."""

    def wide(x: np.ndarray, **how: Any) -> np.ndarray:
        return function(x, **how, dtype=np.float64 if x.dtype.kind == "f" else None)

    return _reduction(wide)


def _strided_slice(call: relax.Call, x: np.ndarray, *_: np.ndarray) -> np.ndarray:
    fields = [[int(v) for v in arg.fields] for arg in call.args[1:]]
    axes, begin, end = fields[:3]
    strides = fields[3] if len(fields) > 3 else [1] * len(axes)
    index = [slice(None)] * x.ndim
    for axis, b, e, s in zip(axes, begin, end, strides, strict=True):
        stop = None if s < 0 and e < -x.shape[axis] else e
        index[axis] = slice(b, stop, s)
    return x[tuple(index)]


def _cumsum(call: relax.Call, x: np.ndarray) -> np.ndarray:
    axis = None if call.attrs.axis is None else _axis(call)
    total = np.cumsum(x, axis=axis, dtype=x.dtype if rw.is_float(call) else rw.dtype_of(call))
    return total - x.astype(total.dtype) if bool(call.attrs.exclusive) else total


def _astype(call: relax.Call, x: np.ndarray) -> np.ndarray:
    """Of another type; few numbers keep the digits that they lose, weights would take room.

    What a model rounds and then widens was to be rounded.
    """
    source = rw.dtype_of(call.args[0])
    if source in HALF and source != rw.dtype_of(call):
        x = x.astype(source)
    made: np.ndarray = x.astype(rw.dtype_of(call))
    narrowed = made.dtype.name in HALF and x.dtype.kind == "f" and x.size <= _FEW
    return np.where(np.isfinite(made), x, made) if narrowed else made


def _plain(function: Callable[..., np.ndarray]) -> _Fold:
    return lambda call, *args: np.asarray(function(*args))


_FOLDERS: dict[str, _Fold] = {
    "reshape": _reshape,
    "expand_dims": _reshape,
    "squeeze": _reshape,
    "flatten": _reshape,
    "nn.batch_flatten": _reshape,
    "permute_dims": lambda call, x: np.transpose(x, _axes(call)),
    "broadcast_to": lambda call, x: np.broadcast_to(x, static_shape(call)),
    "astype": _astype,
    "concat": lambda call, *xs: np.concatenate(xs, axis=_axis(call)),
    "stack": lambda call, *xs: np.stack(xs, axis=_axis(call)),
    "strided_slice": _strided_slice,
    "take": lambda call, x, i: np.take(x, i, axis=None if call.attrs.axis is None else _axis(call)),
    "gather_elements": lambda call, x, i: gather_elements(x, i, _axis(call)),
    "sum": _added_up(np.sum),
    "mean": _added_up(np.mean),
    "max": _reduction(np.max),
    "min": _reduction(np.min),
    "variance": _added_up(np.var),
    "zeros_like": _plain(np.zeros_like),
    "ones_like": _plain(np.ones_like),
    "where": _plain(np.where),
    "isnan": _plain(np.isnan),
    "isinf": _plain(np.isinf),
    "add": _plain(np.add),
    "subtract": _plain(np.subtract),
    "multiply": _plain(np.multiply),
    "maximum": _plain(np.maximum),
    "minimum": _plain(np.minimum),
    "power": _plain(np.power),
    "sqrt": _plain(np.sqrt),
    "rsqrt": lambda call, x: 1 / np.sqrt(x),
    "exp": _plain(np.exp),
    "log": _plain(np.log),
    "abs": _plain(np.abs),
    "negative": _plain(np.negative),
    "square": _plain(np.square),
    "equal": _plain(np.equal),
    "not_equal": _plain(np.not_equal),
    "less": _plain(np.less),
    "less_equal": _plain(np.less_equal),
    "greater": _plain(np.greater),
    "greater_equal": _plain(np.greater_equal),
    "logical_not": _plain(np.logical_not),
    "logical_and": _plain(np.logical_and),
    "logical_or": _plain(np.logical_or),
    "bitwise_and": _plain(np.bitwise_and),
    "bitwise_or": _plain(np.bitwise_or),
    "matmul": _plain(np.matmul),
    "cumsum": _cumsum,
    "index_tensor": lambda call, x, *indices: x[indices],
}
_FLOAT_ONLY: dict[str, _Fold] = {"divide": _plain(np.divide)}
"""Integer division rounds differently in numpy, ONNX and TVM."""

_REFERRED = {
    "std", "prod", "erf", "tanh", "sigmoid", "sin", "cos",
    "nn.relu", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.softplus", "nn.leakyrelu",
    "nn.softmax", "nn.log_softmax",
    "nn.layer_norm", "nn.rms_norm", "nn.instance_norm", "nn.group_norm",
}  # fmt: skip
"""Folded as the reference evaluates them: standardized weights, tables of position biases that a
small network computes. What rounds to steps is left: between two of them digits decide."""

_REFERRED_OF_ANY = {"argmax", "argmin", "flip", "repeat", "tile"}
"""As above, of whatever type: exact. A matrix of weights is taken apart row by row from
its largest element on: with that its determinant is known."""


def _operands(scope: Scope, call: relax.Call) -> list[relax.Expr]:
    """The tensor operands of a call; an inline or bound tuple counts as its fields."""
    found: list[relax.Expr] = []
    for arg in call.args:
        bound = scope.definition(arg)
        if isinstance(bound, relax.Tuple) and rw.op_name(call) in _TAKE_TUPLES:
            found += list(bound.fields)
        elif rw.is_tensor(arg):
            found.append(arg)
    return found


def _fold_constants(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Evaluate a call whose tensor operands are all constants."""
    name = rw.op_name(call)
    if not rw.is_tensor(call):
        return None
    fold = _folder(name, rw.is_float(call))
    if fold is None:
        return None
    operands = _operands(scope, call)
    if not operands or not all(rw.is_constant(x) for x in operands):
        return None
    shape = static_shape(call)
    size_in = sum(int(np.prod(static_shape(x))) for x in operands)
    # TVM cannot save a constant without elements.
    if 0 in shape or int(np.prod(shape)) > max(size_in, _MAX_MATERIALIZED):
        return None
    # What is compared is what is stored: equal numbers stay equal.
    value_of = scope.digits.value if rw.is_float(call) else rw.constant
    values = [x for x in map(value_of, operands) if x is not None]
    with np.errstate(all="ignore"):
        value = fold(call, *values)
    return scope.digits.constant(value.reshape(shape), rw.dtype_of(call))


def _folder(name: str, is_float: bool) -> _Fold | None:
    """What computes an operator's result from its operands' values, if anything does."""
    if name not in _REFERRED_OF_ANY:
        if name in _FOLDERS or not is_float:
            return _FOLDERS.get(name)
        if name not in _REFERRED:
            return _FLOAT_ONLY.get(name)
    operator = OPERATORS[f"relax.{name}"]
    return lambda call, *values: np.asarray(operator(call, list(values)))


def _fold_filled(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``zeros``, ``ones``, ``full`` and their ``_like`` forms become a broadcast scalar."""
    name = rw.op_name(call)
    if not rw.is_tensor(call):
        return None
    if name in ("full", "full_like"):
        filler = call.args[1]
        value = rw.scalar(filler)
        if value is None:
            return None
    else:
        value = 1.0 if name.startswith("ones") else 0.0
    filled = rw.make_constant(np.asarray(value), rw.dtype_of(call))
    shape = static_shape(call)
    return filled if shape == () else relax.op.broadcast_to(filled, relax.ShapeExpr(shape))


def _known_range(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``arange`` between known numbers."""
    numbers = [rw.scalar(arg) for arg in call.args]
    start, stop, step = (*numbers, None, None, None)[:3]
    if start is None or stop is None or step is None or not rw.is_tensor(call):
        return None
    return rw.make_constant(np.arange(start, stop, step), rw.dtype_of(call))


def _shape_as_constant(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """The shape of a tensor is known."""
    x = call.args[0]
    return relax.ShapeExpr(static_shape(x)) if rw.is_tensor(x) else None


def _shape_as_tensor(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """A known shape as an int64 tensor."""
    shape = scope.definition(call.args[0])
    if not isinstance(shape, relax.ShapeExpr):
        return None
    dims = list(shape.values)
    if not all(isinstance(dim, tvm.tirx.IntImm) for dim in dims):
        return None
    return rw.make_constant(np.asarray([int(dim) for dim in dims], dtype="int64"), "int64")


def _tuple_item_of_tuple(scope: Scope, item: relax.TupleGetItem) -> relax.Expr | None:
    """An item of a tuple made here is that field."""
    bound = scope.definition(item.tuple_value)
    return bound.fields[item.index] if isinstance(bound, relax.Tuple) else None


def share_constants(mod: tvm.IRModule) -> tvm.IRModule:
    """Let equal constants be one object, so that every later pass sees and keeps one copy.

    Most weights already differ in their first elements; only those that do not are hashed whole.
    """
    alike: Counter[tuple[str, tuple[int, ...], bytes]] = Counter()
    seen: dict[tuple[str, tuple[int, ...], bytes], relax.Expr] = {}

    def count(expr: relax.Expr) -> relax.Expr:
        alike[_head(expr)] += 1
        return expr

    def shared(expr: relax.Expr) -> relax.Expr:
        head = _head(expr)
        if alike[head] == 1:
            return expr
        value = rw.constant(expr)
        assert value is not None
        return seen.setdefault((*head[:2], hashlib.blake2b(value.tobytes()).digest()), expr)

    return rw.map_constants(rw.map_constants(mod, count), shared)


def _head(expr: relax.Expr) -> tuple[str, tuple[int, ...], bytes]:
    value = rw.constant(expr)
    assert value is not None
    return rw.dtype_of(expr), value.shape, value.reshape(-1)[:_HEAD_ELEMENTS].tobytes()


RULES: Rules = {
    ANY_CALL: (_fold_constants,),
    "zeros": (_fold_filled,),
    "ones": (_fold_filled,),
    "full": (_fold_filled,),
    "zeros_like": (_fold_filled,),
    "ones_like": (_fold_filled,),
    "full_like": (_fold_filled,),
    "arange": (_known_range,),
    "shape_of": (_shape_as_constant,),
    "shape_to_tensor": (_shape_as_tensor,),
    TUPLE_ITEM: (_tuple_item_of_tuple,),
}
