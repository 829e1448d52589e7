"""What OpenVINO runs, as pattern triples: one per operator.

OpenVINO fuses a region by itself, so the patterns say what may stand in one. Its CPU plugin
computes 64-bit integers in 32 bits: they are taken where they are indices, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tvm

from collage.backends.contract import Match, PatternTriple, Verdict
from collage.backends.openvino.converters.elementwise import BINARY, UNARY
from collage.backends.openvino.converters.movement import PAD_MODES
from collage.backends.openvino.converters.nn import (
    RESIZE_COORDINATES,
    RESIZE_METHODS,
    RESIZE_ROUNDING,
)
from collage.backends.openvino.converters.reductions import REDUCTIONS
from collage.backends.openvino.model import DTYPES, MAX_RANK
from collage.backends.relax.byte_patterns import product_in_steps, round_to_bytes
from collage.backends.relax.calls.arguments import operator_name
from collage.backends.relax.constant_data import constant_data
from collage.backends.relax.patterns import all_of
from collage.backends.relax.patterns import operator_checks as checks
from collage.backends.relax.patterns.operators import OperatorPatterns
from collage.backends.relax.recurrent.layer import is_whole_layer, whole_layers
from collage.backends.relax.static_shape import tensor_dtype

_FLOATS = ("float32", "float16", "bfloat16")
_NUMBERS = (*_FLOATS, "int32")
_MOVED = (*_NUMBERS, "int8", "uint8", "bool")
_INDEXED = (*_MOVED, "int64")

_LOGICAL = frozenset({"logical_and", "logical_or", "logical_xor", "logical_not"})
_COMPARING = frozenset({"equal", "not_equal", "greater", "greater_equal", "less", "less_equal"})
_CLASSIFYING = frozenset({"isnan", "isinf", "isfinite"})
_WITH_INTEGERS = frozenset({"add", "subtract", "multiply", "maximum", "minimum"})

_ROUNDING = frozenset({"round", "floor", "ceil", "trunc"})
_ON_THE_WAY = frozenset(
    {"divide", "add", "subtract", "negative", "maximum", "minimum", "clip", "broadcast_to"}
    | {"reshape", "squeeze", "expand_dims"}
)
"""Through which a quotient reaches what rounds it."""

_PATTERNS = OperatorPatterns("openvino", "OpenVINO", DTYPES, MAX_RANK)
_triple = _PATTERNS.triple


def pattern_table() -> list[PatternTriple]:
    """All triples; later ones have a higher priority."""
    return [
        *_movement(),
        *_elementwise(),
        *_reductions(),
        *_pictures(),
        *_multiply_accumulate(),
        *_recurrent(),
        *_in_steps(),
    ]


def _movement() -> Iterator[PatternTriple]:
    yield _triple("reshape", 2, dtypes=_MOVED)
    for name in ("squeeze", "expand_dims", "flatten", "nn.batch_flatten", "permute_dims"):
        yield _triple(name, 1, dtypes=_MOVED)
    yield _triple("layout_transform", 1, checks.only_permutes, dtypes=_MOVED)
    for name in ("concat", "stack", "split"):
        yield _triple(name, 1, dtypes=_MOVED)
    yield _triple("strided_slice", 4, dtypes=_MOVED, optional=True)
    yield _triple("nn.pad", 1, checks.padding(PAD_MODES), dtypes=_NUMBERS)
    yield _triple("broadcast_to", 2, dtypes=_MOVED)
    yield _triple("tile", 1, dtypes=_NUMBERS)
    yield _triple("flip", 1, dtypes=_MOVED)
    for name in ("tril", "triu"):
        yield _triple(name, 2, dtypes=_NUMBERS)
    yield _triple("take", 2, checks.integer_indices, checks.bounded, _no_long_data, dtypes=_INDEXED)
    for name in ("gather_elements", "gather_nd"):
        yield _triple(name, 2, checks.integer_indices, _no_long_data, dtypes=_INDEXED)


def _no_long_data(match: Match) -> Verdict:
    """Indices may be 64-bit integers, what they choose from may not."""
    if tensor_dtype(match.annotated["arg0"]) == "int64":
        return Verdict.no("what is gathered is of int64, which OpenVINO keeps in 32 bits")
    return Verdict.yes()


def _no_infinities(match: Match) -> Verdict:
    """Masks have them; seen with 2026.4: compiling ends at one that is to be rounded."""
    for arg in match.annotated.values():
        halved = isinstance(arg, tvm.ir.GenericConst) and tensor_dtype(arg) == "bfloat16"
        if halved and not np.isfinite(constant_data(arg)).all():
            return Verdict.no("OpenVINO ends at a constant infinity in bfloat16")
    return Verdict.yes()


def _not_rounded_after(match: Match) -> Verdict:
    """A product with the reciprocal is off in the last digit, which is a whole step once rounded.

    So come scales of bytes (a range divided by 255), what is divided by them, and their places.
    """
    seen, todo = set(), [match.root]
    while todo:
        for user in match.users(todo.pop()):
            if user in seen or not isinstance(getattr(user, "op", None), tvm.ir.Op):
                continue
            seen.add(user)
            name = operator_name(user)
            if name in _ROUNDING:
                return Verdict.no(f"OpenVINO multiplies by a reciprocal, and {name} follows")
            if name in _ON_THE_WAY:
                todo.append(user)
    return Verdict.yes()


def _elementwise() -> Iterator[PatternTriple]:
    others = ("nn.silu", "round", "trunc", "rsqrt", "square", "nn.gelu", "nn.gelu_tanh", "nn.selu")
    for name in (*UNARY, *others, "nn.leakyrelu", "nn.softplus"):
        yield _triple(name, 1, dtypes=_dtypes_of(name))
    for name in BINARY:
        exact = (_not_rounded_after,) if name == "divide" else ()
        yield _triple(name, 2, _no_infinities, *exact, dtypes=_dtypes_of(name))
    yield _triple("nn.prelu", 2, dtypes=_FLOATS)
    # Bounds of integers would be rounded to float32.
    yield _triple("clip", 3, dtypes=_FLOATS)
    # Not of integers: seen with 2026.4 to choose wrongly on a processor with AVX2 alone.
    yield _triple("where", 3, _no_infinities, dtypes=(*_FLOATS, "bool"))
    yield _triple("astype", 1, dtypes=_MOVED)


def _dtypes_of(name: str) -> tuple[str, ...]:
    if name in _LOGICAL:
        return ("bool",)
    # Integers would be compared as float32, in which many are the same from 2 ** 24 on.
    if name in _COMPARING or name in _CLASSIFYING:
        return (*_FLOATS, "bool")
    return _NUMBERS if name in _WITH_INTEGERS else _FLOATS


def _reductions() -> Iterator[PatternTriple]:
    for name in (*REDUCTIONS, "variance", "std", "cumsum", "nn.softmax", "nn.log_softmax"):
        yield _triple(name, 1, dtypes=_FLOATS)
    for name in ("argmax", "argmin"):
        yield _triple(name, 1, dtypes=(*_FLOATS, "int64", "int32"))
    for name in ("nn.layer_norm", "nn.group_norm", "nn.instance_norm"):
        yield _triple(name, 3, dtypes=_FLOATS)
    yield _triple("nn.rms_norm", 2, dtypes=_FLOATS)
    yield _PATTERNS.batch_norm(checks.constant_statistics, dtypes=_FLOATS)


def _pictures() -> Iterator[PatternTriple]:
    for rank in (1, 2, 3):
        for kind in ("max", "avg"):
            yield _triple(f"nn.{kind}_pool{rank}d", 1, checks.pooling, dtypes=_FLOATS)
        yield _triple(f"nn.adaptive_avg_pool{rank}d", 1, checks.plain_layout, dtypes=_FLOATS)
    yield _triple("nn.pixel_shuffle", 1, dtypes=_FLOATS)
    resizing = checks.resizing(RESIZE_METHODS, RESIZE_COORDINATES, RESIZE_ROUNDING)
    yield _triple("image.resize2d", 2, resizing, dtypes=_FLOATS)


def _multiply_accumulate() -> Iterator[PatternTriple]:
    convolution = checks.convolution(computed_weights=False)
    for rank in (1, 2, 3):
        yield _triple(f"nn.conv{rank}d", 2, convolution, dtypes=_FLOATS)
        yield _triple(f"nn.conv{rank}d_transpose", 2, convolution, dtypes=_FLOATS)
    yield _triple("matmul", 2, checks.same_dtype, dtypes=_FLOATS)
    yield _triple("nn.attention", 3, checks.attention, dtypes=_FLOATS)
    yield _triple("nn.attention_bias", 4, checks.attention, _no_infinities, dtypes=_FLOATS)


def _recurrent() -> Iterator[PatternTriple]:
    check = all_of(_PATTERNS.static_tensors(("float32",)), is_whole_layer)
    for name, chain in whole_layers():
        yield PatternTriple(f"openvino.recurrent{name}", chain.pattern, check, chain.annotations)


def _in_steps() -> Iterator[PatternTriple]:
    yield round_to_bytes("openvino")
    yield product_in_steps("openvino")
