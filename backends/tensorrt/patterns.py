"""What TensorRT runs, as pattern triples: one per operator.

TensorRT fuses a region by itself, so the patterns say what may stand in one. Every operator of
TVM's own table (``tvm.relax.backend.contrib.tensorrt``) is among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from collage.backends.contract import PatternTriple, Predicate
from collage.backends.relax.patterns import operator_checks
from collage.backends.relax.patterns.operators import OperatorPatterns
from collage.backends.tensorrt import checks
from collage.backends.tensorrt.converters.elementwise import ACTIVATIONS, BINARY, UNARY
from collage.backends.tensorrt.converters.movement import (
    PAD_MODES,
    RESIZE_COORDINATES,
    RESIZE_METHODS,
    RESIZE_ROUNDING,
)
from collage.backends.tensorrt.converters.reductions import REDUCTIONS
from collage.backends.tensorrt.network.values import DTYPES, MAX_RANK
from collage.backends.tensorrt.options import TensorrtOptions

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


_PATTERNS = OperatorPatterns("tensorrt", "TensorRT", DTYPES, MAX_RANK)


def _triple(
    operator: str,
    operands: int,
    *predicates: Predicate,
    dtypes: Sequence[str] = _NUMBERS,
    optional: bool = False,
) -> PatternTriple:
    return _PATTERNS.triple(operator, operands, *predicates, dtypes=dtypes, optional=optional)


def _movement() -> Iterator[PatternTriple]:
    anything = tuple(name for name in DTYPES if name != "int8")
    yield _triple("reshape", 2, dtypes=anything)
    for name in ("squeeze", "expand_dims", "flatten", "nn.batch_flatten"):
        yield _triple(name, 1, dtypes=anything)
    yield _triple("permute_dims", 1, dtypes=anything)
    yield _triple("layout_transform", 1, operator_checks.only_permutes, dtypes=anything)
    for name in ("concat", "stack", "split"):
        yield _triple(name, 1, dtypes=anything)
    yield _triple("strided_slice", 4, dtypes=anything, optional=True)
    yield _triple("nn.pad", 1, operator_checks.padding(PAD_MODES), dtypes=_NUMBERS)
    yield _triple("broadcast_to", 2, dtypes=anything)
    yield _triple("tile", 1, dtypes=_NUMBERS)
    yield _triple("flip", 1, dtypes=anything)
    yield _triple(
        "take", 2, operator_checks.integer_indices, operator_checks.bounded, dtypes=anything
    )
    for name in ("gather_elements", "gather_nd"):
        yield _triple(name, 2, operator_checks.integer_indices, dtypes=anything)


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
    yield _PATTERNS.batch_norm(operator_checks.constant_statistics, dtypes=_FLOATS)


def _pictures() -> Iterator[PatternTriple]:
    for rank in (1, 2, 3):
        for kind in ("max", "avg"):
            yield _triple(f"nn.{kind}_pool{rank}d", 1, operator_checks.pooling, dtypes=_FLOATS)
        yield _triple(f"nn.adaptive_avg_pool{rank}d", 1, checks.even_windows, dtypes=_FLOATS)
    yield _triple(
        "image.resize2d",
        2,
        operator_checks.resizing(RESIZE_METHODS, RESIZE_COORDINATES, RESIZE_ROUNDING),
        dtypes=("float32", "float16"),
    )


def _multiply_accumulate(use_int8: bool) -> Iterator[PatternTriple]:
    convolution = operator_checks.convolution(computed_weights=use_int8)
    for rank in (1, 2, 3):
        yield _triple(f"nn.conv{rank}d", 2, convolution, dtypes=_FLOATS)
        yield _triple(
            f"nn.conv{rank}d_transpose",
            2,
            convolution,
            operator_checks.transposed_convolution,
            dtypes=_FLOATS,
        )
    yield _triple("matmul", 2, operator_checks.same_dtype, dtypes=_FLOATS)
    yield _triple("nn.attention", 3, operator_checks.attention, dtypes=_FLOATS)
    yield _triple("nn.attention_bias", 4, operator_checks.attention, dtypes=_FLOATS)
