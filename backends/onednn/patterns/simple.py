"""Pools, reductions, resizing, normalizations: primitives of their own."""

from __future__ import annotations

from collections.abc import Iterator

from tvm.relax.dpl import is_op, wildcard

from collage.backends.contract import Match, PatternTriple, Verdict
from collage.backends.onednn.patterns._base import call_of, channels_first, triple
from collage.backends.relax.calls.pooling import PoolPadding
from collage.backends.relax.patterns import Chain, either_order, operator
from collage.backends.relax.static_shape import tensor_shape

_MIDDLES = ("half_pixel", "pytorch_half_pixel")


_SAME_NEAREST = frozenset(
    [("asymmetric", "floor")]
    + [(mode, rounding) for mode in _MIDDLES for rounding in ("round", "round_prefer_floor")]
)


def simple() -> Iterator[PatternTriple]:
    """Triples of operators that are one primitive each."""
    for rank in (1, 2, 3):
        for name in (f"max_pool{rank}d", f"avg_pool{rank}d"):
            pool = operator(f"relax.nn.{name}", 1)
            yield triple(name, pool, channels_first, _within_padding)
        name = f"adaptive_avg_pool{rank}d"
        adaptive = operator(f"relax.nn.{name}", 1)
        yield triple(name, adaptive, channels_first, _even_windows)
    for name in ("mean", "sum", "max", "min"):
        yield triple(name, operator(f"relax.{name}", 1))
    resize = operator("relax.image.resize2d", 2)
    yield triple("resize2d", resize, channels_first, _resampled_by_middles)
    for name in ("softmax", "log_softmax"):
        yield triple(name, operator(f"relax.nn.{name}", 1))
    layer_norm = operator("relax.nn.layer_norm", 3)
    yield triple("layer_norm", layer_norm, _last_axes)
    yield triple("lrn", _lrn_chain())
    yield triple("channel_shuffle", _shuffle_chain())


def _resampled_by_middles(match: Match) -> Verdict:
    """oneDNN maps the middles of points to each other, whatever the operator says."""
    attrs = call_of(match).attrs
    given, wanted = tensor_shape(match.annotated["arg0"]), tensor_shape(match.root)
    assert given is not None and wanted is not None
    method, mode = str(attrs.method), str(attrs.coordinate_transformation_mode)
    if method == "linear" and mode in _MIDDLES and 1 not in wanted[2:]:
        return Verdict.yes()
    if method == "nearest_neighbor":
        # Where each point becomes several, all ways to round agree but one that looks ahead.
        whole = all(new % old == 0 for new, old in zip(wanted[2:], given[2:], strict=True))
        rounding = str(attrs.rounding_method)
        if whole and (mode, rounding) in _SAME_NEAREST:
            return Verdict.yes()
    return Verdict.no(f"{method} resizing of {given} to {wanted} by {mode} coordinates")


def _within_padding(match: Match) -> Verdict:
    """oneDNN counts every place of a window that includes padding; with ceil mode some lie beyond
    the padding, and ONNX and TVM do not count those."""
    call = call_of(match)
    average = call.op.name.startswith("relax.nn.avg")
    if average and call.attrs.count_include_pad and PoolPadding.of(call).exceeded:
        return Verdict.no("a window reaches beyond the padding that its average includes")
    return Verdict.yes()


def _even_windows(match: Match) -> Verdict:
    given, wanted = tensor_shape(match.annotated["arg0"]), tensor_shape(match.root)
    if given is None or wanted is None or any(g % w for g, w in zip(given, wanted, strict=True)):
        return Verdict.no(f"windows of adaptive pooling {given} to {wanted} are uneven")
    return Verdict.yes()


def _last_axes(match: Match) -> Verdict:
    rank = len(tensor_shape(match.root) or ())
    axes = sorted(int(axis) % rank for axis in call_of(match).attrs.axes)
    if axes != list(range(rank - len(axes), rank)):
        return Verdict.no(f"normalized axes {axes} are not the last ones")
    return Verdict.yes()


def _lrn_chain() -> Chain:
    x = wildcard()
    square = is_op("relax.multiply")(x, x) | is_op("relax.square")(x)
    rows = is_op("relax.reshape")(square, wildcard())
    pooled = is_op("relax.reshape")(is_op("relax.nn.avg_pool2d")(rows), wildcard())
    scaled = either_order("relax.multiply", pooled, wildcard())
    shifted = either_order("relax.add", scaled, wildcard())
    chain = is_op("relax.divide")(x, is_op("relax.power")(shifted, wildcard()))
    return Chain(chain, {"x": x})


def _shuffle_chain() -> Chain:
    x = wildcard()
    grouped = is_op("relax.reshape")(x, wildcard())
    chain = is_op("relax.reshape")(is_op("relax.permute_dims")(grouped), wildcard())
    return Chain(chain, {"x": x})
