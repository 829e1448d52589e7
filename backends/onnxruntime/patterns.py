"""What onnxruntime runs, as pattern triples: one per operator.

It fuses a region by itself, so the patterns say what may stand in one: what its CPU provider has a
kernel for, in the dtypes of that kernel (``docs/OperatorKernels.md`` of its sources). Half
precision is left out: it has few kernels of it, and computes the rest in float32 between casts.
"""

from __future__ import annotations

from collections.abc import Iterator

from collage.backends.contract import Match, PatternTriple, Verdict
from collage.backends.onnxruntime.converters.elementwise import (
    BINARY,
    CLASSIFYING,
    COMPARING,
    UNARY,
)
from collage.backends.onnxruntime.converters.movement import PAD_MODES
from collage.backends.onnxruntime.converters.nn import (
    RESIZE_COORDINATES,
    RESIZE_METHODS,
    RESIZE_ROUNDING,
)
from collage.backends.onnxruntime.converters.reductions import REDUCTIONS
from collage.backends.onnxruntime.model import ELEMENT_TYPES, MAX_RANK
from collage.backends.relax.calls.arguments import axes_of
from collage.backends.relax.calls.layouts import data_layout, spatial_rank
from collage.backends.relax.calls.pooling import SPATIAL
from collage.backends.relax.patterns import all_of
from collage.backends.relax.patterns import operator_checks as checks
from collage.backends.relax.patterns.operators import OperatorPatterns
from collage.backends.relax.recurrent.layer import is_whole_layer, whole_layers
from collage.backends.relax.static_shape import tensor_shape

_FLOAT = ("float32",)
_INTEGERS = ("int32", "int64")
_NUMBERS = (*_FLOAT, *_INTEGERS)
_ALL = (*_NUMBERS, "int8", "uint8", "bool")

_TRUTHS = frozenset({"logical_and", "logical_or", "logical_xor", "logical_not"})
_OF_NUMBERS = frozenset({"add", "subtract", "multiply", "maximum", "minimum", "abs", "negative"})

_PATTERNS = OperatorPatterns("onnxruntime", "onnxruntime", ELEMENT_TYPES, MAX_RANK)
_triple = _PATTERNS.triple


def pattern_table() -> list[PatternTriple]:
    """All triples; later ones have a higher priority."""
    return [
        *_movement(),
        *_elementwise(),
        *_reductions(),
        *_norms(),
        *_pictures(),
        *_multiply_accumulate(),
        *_recurrent(),
    ]


def _movement() -> Iterator[PatternTriple]:
    yield _triple("reshape", 2, dtypes=_ALL)
    for name in ("squeeze", "expand_dims", "flatten", "nn.batch_flatten", "permute_dims"):
        yield _triple(name, 1, dtypes=_ALL)
    yield _triple("layout_transform", 1, checks.only_permutes, dtypes=_ALL)
    for name in ("concat", "stack", "split"):
        yield _triple(name, 1, dtypes=_ALL)
    yield _triple("strided_slice", 4, dtypes=_ALL, optional=True)
    yield _triple("nn.pad", 1, checks.padding(PAD_MODES), dtypes=_NUMBERS)
    yield _triple("broadcast_to", 2, dtypes=_ALL)
    yield _triple("tile", 1, dtypes=_NUMBERS)
    yield _triple("flip", 1, dtypes=_ALL)
    for name in ("tril", "triu"):
        yield _triple(name, 2, dtypes=(*_FLOAT, "int64"))
    yield _triple("take", 2, checks.integer_indices, checks.bounded, dtypes=_ALL)
    for name in ("gather_elements", "gather_nd"):
        yield _triple(name, 2, checks.integer_indices, dtypes=_ALL)


def _elementwise() -> Iterator[PatternTriple]:
    others = ("trunc", "rsqrt", "nn.silu", "nn.gelu", "nn.gelu_tanh", "nn.selu")
    for name in (*UNARY, *others, "nn.leakyrelu", "nn.softplus"):
        yield _triple(name, 1, dtypes=_dtypes_of(name))
    yield _triple("square", 1, dtypes=_NUMBERS)
    for name in (*CLASSIFYING, "isfinite"):
        yield _triple(name, 1, dtypes=(*_FLOAT, "bool"))
    for name in (*BINARY, "mod"):
        yield _triple(name, 2, dtypes=_dtypes_of(name))
    # Of floats ONNX has only the remainder that has the dividend's sign.
    yield _triple("floor_mod", 2, dtypes=_INTEGERS)
    for name in (*COMPARING, "not_equal"):
        yield _triple(name, 2, dtypes=(*_NUMBERS, "bool"))
    yield _triple("nn.prelu", 2, dtypes=_FLOAT)
    yield _triple("clip", 3, dtypes=_FLOAT)
    yield _triple("where", 3, _no_truths, dtypes=(*_NUMBERS, "uint8", "bool"))
    yield _triple("astype", 1, dtypes=_ALL)


def _dtypes_of(name: str) -> tuple[str, ...]:
    if name in _TRUTHS:
        return ("bool",)
    return _NUMBERS if name in _OF_NUMBERS else _FLOAT


def _no_truths(match: Match) -> Verdict:
    """``Where`` chooses among numbers."""
    if match.root.ty.dtype == "bool":
        return Verdict.no("onnxruntime does not choose among truth values")
    return Verdict.yes()


def _reductions() -> Iterator[PatternTriple]:
    for name in REDUCTIONS:
        yield _triple(name, 1, dtypes=_NUMBERS if name != "mean" else _FLOAT)
    for name in ("variance", "std", "nn.softmax", "nn.log_softmax"):
        yield _triple(name, 1, dtypes=_FLOAT)
    yield _triple("cumsum", 1, dtypes=_FLOAT)
    for name in ("argmax", "argmin"):
        yield _triple(name, 1, dtypes=(*_FLOAT, *_INTEGERS))


def _norms() -> Iterator[PatternTriple]:
    yield _triple("nn.layer_norm", 3, _over_the_last_axes, dtypes=_FLOAT)
    yield _triple("nn.rms_norm", 2, _over_the_last_axis, dtypes=_FLOAT)
    for name in ("nn.group_norm", "nn.instance_norm"):
        yield _triple(name, 3, _over_all_behind_channels, dtypes=_FLOAT)
    yield _PATTERNS.batch_norm(checks.constant_statistics, dtypes=_FLOAT)


def _normed(match: Match) -> tuple[list[int], int]:
    """A norm's axes, and its operand's rank."""
    call = checks.root_call(match)
    rank = len(tensor_shape(match.annotated["arg0"]) or ())
    return sorted(axes_of(call, rank, "axes")), rank


def _over_the_last_axes(match: Match) -> Verdict:
    axes, rank = _normed(match)
    if axes != list(range(rank - len(axes), rank)):
        return Verdict.no(f"normalizes over axes {axes} of {rank}, not the last ones")
    return Verdict.yes()


def _over_the_last_axis(match: Match) -> Verdict:
    axes, rank = _normed(match)
    if axes != [rank - 1]:
        return Verdict.no(f"normalizes over axes {axes} of {rank}, not the last one")
    return Verdict.yes()


def _over_all_behind_channels(match: Match) -> Verdict:
    axes, rank = _normed(match)
    channel = int(checks.root_call(match).attrs.channel_axis) % rank
    if channel != 1 or [axis for axis in axes if axis != 1] != list(range(2, rank)):
        return Verdict.no(f"normalizes over axes {axes} of {rank}, with channels at {channel}")
    return Verdict.yes()


def _pictures() -> Iterator[PatternTriple]:
    for rank in (1, 2, 3):
        for kind in ("max", "avg"):
            yield _triple(f"nn.{kind}_pool{rank}d", 1, checks.pooling, dtypes=_FLOAT)
        adaptive = (checks.plain_layout, _in_equal_parts)
        yield _triple(f"nn.adaptive_avg_pool{rank}d", 1, *adaptive, dtypes=_FLOAT)
    yield _triple("nn.pixel_shuffle", 1, dtypes=_FLOAT)
    resizing = checks.resizing(RESIZE_METHODS, RESIZE_COORDINATES, RESIZE_ROUNDING)
    yield _triple("image.resize2d", 2, resizing, dtypes=_FLOAT)


def _in_equal_parts(match: Match) -> Verdict:
    """An adaptive pool whose windows are all alike."""
    call = checks.root_call(match)
    layout, rank = data_layout(call), spatial_rank(call)
    given, wanted = (tensor_shape(expr) or () for expr in (match.annotated["arg0"], call))
    for axis in SPATIAL[rank]:
        have, want = given[layout.index(axis)], wanted[layout.index(axis)]
        if have % want:
            return Verdict.no(f"{have} places are not shared out equally among {want}")
    return Verdict.yes()


def _multiply_accumulate() -> Iterator[PatternTriple]:
    convolution = checks.convolution(computed_weights=True)
    for rank in (1, 2, 3):
        yield _triple(f"nn.conv{rank}d", 2, convolution, dtypes=_FLOAT)
        yield _triple(f"nn.conv{rank}d_transpose", 2, convolution, dtypes=_FLOAT)
    yield _triple("matmul", 2, checks.same_dtype, dtypes=_FLOAT)
    yield _triple("nn.attention", 3, checks.attention, dtypes=_FLOAT)
    yield _triple("nn.attention_bias", 4, checks.attention, dtypes=_FLOAT)


def _recurrent() -> Iterator[PatternTriple]:
    check = all_of(_PATTERNS.static_tensors(_FLOAT), is_whole_layer)
    for name, chain in whole_layers():
        yield PatternTriple(f"onnxruntime.recurrent{name}", chain.pattern, check, chain.annotations)
