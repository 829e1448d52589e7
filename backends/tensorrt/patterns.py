"""What TensorRT runs, as pattern triples: one per operator.

TensorRT fuses a region by itself, so the patterns say what may stand in one. Every operator of
TVM's own table (``tvm.relax.backend.contrib.tensorrt``) is among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tvm
from tvm import relax
from tvm.relax.dpl import is_op, is_tuple_get_item, wildcard

from collage.backends.contract import Match, PatternTriple, Predicate, Verdict
from collage.backends.relax.patterns import all_of
from collage.backends.relax.static_shape import tensor_shape
from collage.backends.tensorrt import checks
from collage.backends.tensorrt.converters.elementwise import ACTIVATIONS, BINARY, UNARY
from collage.backends.tensorrt.converters.reductions import REDUCTIONS
from collage.backends.tensorrt.options import TensorrtOptions
from collage.backends.tensorrt.values import DTYPES, MAX_RANK

_FLOATS = ("float32", "float16", "bfloat16")
_NUMBERS = (*_FLOATS, "int32", "int64")

_WITH_INTEGERS = frozenset(
    {"add", "subtract", "multiply", "maximum", "minimum", "floor_divide", "equal", "greater"}
    | {"less", "not_equal", "less_equal", "greater_equal", "abs", "negative", "clip", "sum"}
    | {"max", "min", "prod"}
)
_LOGICAL = frozenset({"logical_and", "logical_or", "logical_xor", "logical_not"})

MULTIPLY_ACCUMULATE = frozenset(
    {"matmul", "nn.attention", "nn.attention_bias"}
    | {f"nn.conv{rank}d{kind}" for rank in (1, 2, 3) for kind in ("", "_transpose")}
)
"""Operators whose work is multiplications and additions."""

QUANTIZING = frozenset({"quantize", "dequantize"})


def pattern_table(options: TensorrtOptions) -> list[PatternTriple]:
    """All triples; later ones have a higher priority."""
    return [
        *_movement(),
        *_elementwise(),
        *_reductions(),
        *_pictures(),
        *_multiply_accumulate(options.use_int8),
        *(
            _triple(name, 3, checks.quantized(options.use_int8), dtypes=(*_FLOATS, "int8", "int32"))
            for name in sorted(QUANTIZING)
        ),
    ]


def _triple_name(operator: str) -> str:
    """The name of an operator's triple: ``tensorrt.conv2d`` for ``nn.conv2d``."""
    return "tensorrt." + operator.split(".")[-1]


def _triple(
    operator: str,
    operands: int,
    *predicates: Predicate,
    dtypes: Sequence[str] = _NUMBERS,
    optional: bool = False,
) -> PatternTriple:
    """A call of one operator.

    Parameters
    ----------
    operands : int
        Arguments it has.
    dtypes : sequence of str
        What its tensors may be.
    optional : bool
        It may have more arguments than that.
    """
    args = [wildcard() for _ in range(operands)]
    call = is_op(f"relax.{operator}")(*args, varg_default_wildcard=optional)
    named = {"root": call, **{f"arg{i}": arg for i, arg in enumerate(args)}}
    check = all_of(_static_tensors(dtypes), *predicates)
    return PatternTriple(_triple_name(operator), call, check, named)


def _static_tensors(dtypes: Sequence[str]) -> Predicate:
    """Every tensor has a static shape that TensorRT can hold, and one of the dtypes."""

    def check(match: Match) -> Verdict:
        for name, ty in _tensor_types(match):
            dtype = str(ty.dtype)
            if dtype not in DTYPES:
                return Verdict.no(f"{name} has dtype {dtype}, which TensorRT does not have")
            if dtype not in dtypes:
                return Verdict.no(f"{name} has dtype {dtype}; supported: {', '.join(dtypes)}")
            shape = tensor_shape(ty)
            if shape is None:
                return Verdict.no(f"{name} has no static shape: {ty}")
            if 0 in shape:
                return Verdict.no(f"{name} is empty: shape {shape}")
            if len(shape) > MAX_RANK:
                return Verdict.no(f"{name} has {len(shape)} dimensions, more than {MAX_RANK}")
        return Verdict.yes()

    return check


def _tensor_types(match: Match) -> Iterator[tuple[str, relax.TensorType]]:
    for name, expr in {"result": match.root, **match.annotated}.items():
        if isinstance(expr.ty, relax.TensorType):
            yield name, expr.ty
        elif isinstance(expr.ty, relax.TupleType):
            for place, field in enumerate(expr.ty.fields):
                if isinstance(field, relax.TensorType):
                    yield f"{name}[{place}]", field


def _movement() -> Iterator[PatternTriple]:
    anything = tuple(name for name in DTYPES if name != "int8")
    yield _triple("reshape", 2, dtypes=anything)
    for name in ("squeeze", "expand_dims", "flatten", "nn.batch_flatten"):
        yield _triple(name, 1, dtypes=anything)
    yield _triple("permute_dims", 1, dtypes=anything)
    yield _triple("layout_transform", 1, checks.permutation, dtypes=anything)
    for name in ("concat", "stack", "split"):
        yield _triple(name, 1, dtypes=anything)
    yield _triple("strided_slice", 4, dtypes=anything, optional=True)
    yield _triple("nn.pad", 1, checks.padding, dtypes=_NUMBERS)
    yield _triple("broadcast_to", 2, dtypes=anything)
    yield _triple("tile", 1, dtypes=_NUMBERS)
    yield _triple("flip", 1, dtypes=anything)
    yield _triple("take", 2, checks.gathered, checks.known_mode, dtypes=anything)
    for name in ("gather_elements", "gather_nd"):
        yield _triple(name, 2, checks.gathered, dtypes=anything)


def _elementwise() -> Iterator[PatternTriple]:
    for name in (*UNARY, "round", "rsqrt", "square", *ACTIVATIONS, "nn.silu", "nn.selu"):
        yield _triple(name, 1, dtypes=_dtypes_of(name))
    for name in ("nn.leakyrelu", "nn.softplus"):
        yield _triple(name, 1, dtypes=_FLOATS)
    for name in (*BINARY, "not_equal", "less_equal", "greater_equal"):
        comparing = "equal" in name or name in ("greater", "less")
        yield _triple(
            name, 2, dtypes=(*_dtypes_of(name), "bool") if comparing else _dtypes_of(name)
        )
    yield _triple("nn.prelu", 2, dtypes=_FLOATS)
    yield _triple("clip", 3, dtypes=_NUMBERS)
    yield _triple("where", 3, dtypes=(*_NUMBERS, "bool"))
    yield _triple("astype", 1, dtypes=(*_NUMBERS, "bool"))


def _dtypes_of(name: str) -> Sequence[str]:
    if name in _LOGICAL:
        return ("bool",)
    return _NUMBERS if name in _WITH_INTEGERS else _FLOATS


def _reductions() -> Iterator[PatternTriple]:
    for name in REDUCTIONS:
        yield _triple(name, 1, dtypes=_dtypes_of(name))
    for name in ("variance", "std", "nn.softmax", "nn.log_softmax"):
        yield _triple(name, 1, dtypes=_FLOATS)
    for name in ("argmax", "argmin"):
        yield _triple(name, 1, checks.arg_reduction, dtypes=(*_FLOATS, "int32", "int64"))
    yield _triple("nn.layer_norm", 3, checks.affine, dtypes=_FLOATS)
    yield _triple("nn.rms_norm", 2, dtypes=_FLOATS)
    for name in ("nn.group_norm", "nn.instance_norm"):
        yield _triple(name, 3, dtypes=_FLOATS)
    args = [wildcard() for _ in range(5)]
    call = is_op("relax.nn.batch_norm")(*args)
    named = {"root": call, **{f"arg{i}": arg for i, arg in enumerate(args)}}
    check = all_of(_static_tensors(_FLOATS), checks.inference)
    yield PatternTriple("tensorrt.batch_norm", is_tuple_get_item(call, 0), check, named)


def _pictures() -> Iterator[PatternTriple]:
    for rank in (1, 2, 3):
        for kind in ("max", "avg"):
            yield _triple(f"nn.{kind}_pool{rank}d", 1, checks.pooling, dtypes=_FLOATS)
        yield _triple(f"nn.adaptive_avg_pool{rank}d", 1, checks.even_windows, dtypes=_FLOATS)
    yield _triple("image.resize2d", 2, checks.resizing, dtypes=("float32", "float16"))


def _multiply_accumulate(use_int8: bool) -> Iterator[PatternTriple]:
    convolution = checks.convolution(use_int8)
    for rank in (1, 2, 3):
        yield _triple(f"nn.conv{rank}d", 2, convolution, dtypes=_FLOATS)
        yield _triple(
            f"nn.conv{rank}d_transpose",
            2,
            convolution,
            checks.transposed_convolution,
            dtypes=_FLOATS,
        )
    yield _triple("matmul", 2, checks.same_dtype, dtypes=_FLOATS)
    yield _triple("nn.attention", 3, checks.attention, dtypes=_FLOATS)
    yield _triple("nn.attention_bias", 4, checks.attention, dtypes=_FLOATS)


def operator_names(values: Sequence[relax.Expr]) -> list[str]:
    """Names of the Relax operators among some bindings' values, without ``relax.``."""
    return [
        str(value.op.name).removeprefix("relax.")
        for value in values
        if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
    ]
