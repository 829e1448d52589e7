"""Predicates on a single operator's call, which several libraries ask: refusals with their reasons.

They are for the triples of :class:`~collage.backends.relax.patterns.operators.OperatorPatterns`, by
whose names they know the call (``root``) and its operands.
"""

from __future__ import annotations

from collections.abc import Collection

import tvm
from tvm import relax

from collage.backends.contract import Match, Predicate, Verdict
from collage.backends.relax.calls.layouts import data_layout, permutation_of, spatial_rank
from collage.backends.relax.calls.pooling import SPATIAL, PoolPadding, split_padding
from collage.backends.relax.static_shape import tensor_dtype, tensor_shape


def root_call(match: Match) -> relax.Call:
    """The operator's call."""
    call = match.annotated["root"]
    assert isinstance(call, relax.Call)
    return call


def is_constant(expr: relax.Expr) -> bool:
    """Whether an expression is an inline constant."""
    return isinstance(expr, tvm.ir.GenericConst)


def only_permutes(match: Match) -> Verdict:
    """``layout_transform`` only permutes axes."""
    if permutation_of(root_call(match)) is None:
        return Verdict.no(f"{root_call(match).attrs.index_map} does more than permute axes")
    return Verdict.yes()


def integer_indices(match: Match) -> Verdict:
    """What is gathered by has integer indices."""
    dtype = tensor_dtype(match.annotated["arg1"])
    if dtype not in ("int32", "int64"):
        return Verdict.no(f"indices of dtype {dtype}")
    return Verdict.yes()


def bounded(match: Match) -> Verdict:
    """``take`` has indices in bounds, or clips them."""
    mode = str(root_call(match).attrs.mode)
    if mode not in ("fast", "clip"):
        return Verdict.no(f"mode '{mode}'; supported: fast, clip")
    return Verdict.yes()


def constant_statistics(match: Match) -> Verdict:
    """``batch_norm`` normalizes with constant statistics."""
    if root_call(match).attrs.training:
        return Verdict.no("batch_norm in training mode takes its statistics from the batch")
    if not all(is_constant(match.annotated[f"arg{i}"]) for i in range(1, 5)):
        return Verdict.no("gamma, beta, mean and variance are not all constants")
    return Verdict.yes()


def padding(modes: Collection[str]) -> Predicate:
    """``pad`` grows the tensor, in one of the given modes."""

    def check(match: Match) -> Verdict:
        attrs = root_call(match).attrs
        if str(attrs.pad_mode) not in modes:
            return Verdict.no(f"padding mode {attrs.pad_mode}; supported: {', '.join(modes)}")
        if any(int(width) < 0 for width in attrs.pad_width):
            return Verdict.no(f"negative padding {[int(width) for width in attrs.pad_width]}")
        return Verdict.yes()

    return check


def resizing(
    methods: Collection[str], coordinates: Collection[str], rounding: Collection[str]
) -> Predicate:
    """``resize2d`` to a known size, in one of the modes that a library has exactly.

    Parameters
    ----------
    methods, coordinates, rounding : collection of str
        As Relax calls them; how coordinates are rounded counts for the nearest neighbour alone.

    Returns
    -------
    Predicate
        It says no with the reason: a layout, a dtype, or a mode.
    """

    def check(match: Match) -> Verdict:
        call = root_call(match)
        attrs = call.attrs
        if not isinstance(match.annotated["arg1"], relax.ShapeExpr):
            return Verdict.no("the size is not known")
        if str(attrs.layout) not in ("NCHW", "NHWC"):
            return Verdict.no(f"layout {attrs.layout}")
        if tensor_dtype(call) != tensor_dtype(match.annotated["arg0"]):
            return Verdict.no("changes the dtype")
        modes = [
            (str(attrs.method), methods),
            (str(attrs.coordinate_transformation_mode), coordinates),
        ]
        if str(attrs.method) == "nearest_neighbor":
            modes.append((str(attrs.rounding_method), rounding))
        for mode, known in modes:
            if mode not in known:
                return Verdict.no(f"mode '{mode}'; supported: {', '.join(known)}")
        return Verdict.yes()

    return check


def convolution(*, computed_weights: bool) -> Predicate:
    """A known layout, no negative padding; weights may have to be constant.

    Parameters
    ----------
    computed_weights : bool
        Whether the weights may be no constant.
    """

    def check(match: Match) -> Verdict:
        call = root_call(match)
        attrs = call.attrs
        verdict = same_layout(call)
        if not verdict:
            return verdict
        if not computed_weights and not is_constant(match.annotated["arg1"]):
            return Verdict.no("the weights are no constant")
        spatial = SPATIAL[spatial_rank(call)]
        if sorted(str(attrs.kernel_layout)) != sorted("OI" + spatial):
            return Verdict.no(f"weights are laid out {attrs.kernel_layout}")
        if any(int(width) < 0 for width in attrs.padding):
            return Verdict.no(f"negative padding {[int(width) for width in attrs.padding]}")
        return same_dtype(match)

    return check


def same_layout(call: relax.Call) -> Verdict:
    """What is channels first or last comes out so."""
    given, result = data_layout(call), str(call.attrs.out_layout or "")
    if sorted(given) != sorted("NC" + SPATIAL[spatial_rank(call)]):
        return Verdict.no(f"layout {given} is blocked")
    if result not in ("", given):
        return Verdict.no(f"changes layout {given} to {result}")
    return Verdict.yes()


def plain_layout(match: Match) -> Verdict:
    """The data are channels first or last, and come out as they went in."""
    return same_layout(root_call(match))


def pooling(match: Match) -> Verdict:
    """Windows are dense, and an average counts no place beyond the padding."""
    call = root_call(match)
    attrs = call.attrs
    verdict = same_layout(call)
    if not verdict:
        return verdict
    if any(int(step) != 1 for step in attrs.dilation):
        return Verdict.no(f"dilated windows {[int(step) for step in attrs.dilation]}")
    padding = PoolPadding.of(call)
    before, reached = padding.before, [max(width, 0) for width in padding.reached]
    if min([*before, *padding.after]) < 0:
        return Verdict.no(f"negative padding {before}, {padding.after}")
    sizes = [int(size) for size in attrs.pool_size]
    if any(max(a, b) >= size for a, b, size in zip(before, reached, sizes, strict=True)):
        return Verdict.no(f"padding {before}, {reached} is as large as windows of {sizes}")
    average = ".avg_" in str(call.op.name)
    if average and attrs.count_include_pad and padding.exceeded:
        return Verdict.no("a window reaches beyond the padding that its average includes")
    return Verdict.yes()


def transposed_convolution(match: Match) -> Verdict:
    """What is added to the end of the output can be taken from the padding there."""
    call = root_call(match)
    _, after = split_padding(call.attrs.padding, spatial_rank(call))
    more = [int(width) for width in call.attrs.output_padding]
    if any(extra > have for extra, have in zip(more, after, strict=True)):
        return Verdict.no(f"output_padding {more} exceeds the padding {after} at the end")
    return Verdict.yes()


def same_dtype(match: Match) -> Verdict:
    """Operands and result have one dtype."""
    dtypes = {
        tensor_dtype(expr)
        for expr in (root_call(match), match.annotated["arg0"], match.annotated["arg1"])
    }
    if len(dtypes) > 1:
        return Verdict.no(f"operands and result have dtypes {', '.join(sorted(dtypes))}")
    return Verdict.yes()


def attention(match: Match) -> Verdict:
    """As many heads in the keys as in the queries, no sliding window."""
    call = root_call(match)
    if call.attrs.window_size is not None:
        return Verdict.no(f"a sliding window of {call.attrs.window_size}")
    heads = {(tensor_shape(match.annotated[f"arg{i}"]) or (0, 0, 0))[2] for i in range(3)}
    if len(heads) > 1:
        return Verdict.no(f"queries, keys and values have {sorted(heads)} heads")
    if "arg3" in match.annotated and len(tensor_shape(match.annotated["arg3"]) or ()) != 4:
        return Verdict.no("the bias has not four dimensions")
    return Verdict.yes()
