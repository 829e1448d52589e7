"""How operators become tensor programs on a GPU, where TVM's own way is wrong or slow there.

Attention becomes its chain of products, so that each of them gets a schedule of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from tvm import relax, te, tirx, topi
from tvm.ir import GenericConst

from collage.backends.relax.calls.pooling import SPATIAL
from collage.backends.relax.kept_whole.running import LOGSUMEXP
from collage.backends.relax.kept_whole.running import NAME as RUNNING
from collage.backends.relax.kept_whole.search import NAME as SEARCH
from collage.backends.relax.recurrent import NAME as RECURRENT
from collage.backends.relax.static_shape import static_shape
from collage.backends.relax.trees import NAME as TREES
from collage.backends.tvm.common.legalization import (
    OUT_FUSABLE,
    Legalization,
    default_legalization,
)
from collage.backends.tvm.common.numbers.exact import EXACT
from collage.backends.tvm.common.numbers.rounding import WIDE
from collage.backends.tvm.cuda import norms
from collage.backends.tvm.cuda.affine import legalize_index, legalize_take
from collage.backends.tvm.cuda.bands import legalize_banded
from collage.backends.tvm.cuda.fourier import legalize_product
from collage.backends.tvm.cuda.median import legalize_median
from collage.backends.tvm.cuda.phases import legalize_groups
from collage.backends.tvm.cuda.recurrent import legalize_recurrent
from collage.backends.tvm.cuda.regions import legalize_region_maxima, legalize_region_samples
from collage.backends.tvm.cuda.rows.scans import (
    legalize_running_extreme,
    legalize_running_logsumexp,
)
from collage.backends.tvm.cuda.rows.search import legalize_search
from collage.backends.tvm.cuda.scatter import legalize_scatter_elements, legalize_scatter_nd
from collage.backends.tvm.cuda.transposed import legalize_transposed_convolution
from collage.backends.tvm.cuda.trees import legalize_trees

_ROI_POOL, _ROI_ALIGN = "relax.vision.roi_pool", "relax.vision.roi_align"


def legalizations() -> Mapping[str, Legalization]:
    """This device's legalizations, by operator name."""
    return {
        **EXACT,
        **norms.legalizations(),
        **{f"relax.nn.conv{n}d": _legalize_convolution for n in (1, 2, 3)},
        **{f"relax.nn.adaptive_avg_pool{n}d": _legalize_adaptive_pool for n in (1, 2, 3)},
        **{f"relax.nn.conv{n}d_transpose": legalize_transposed_convolution for n in (1, 2, 3)},
        "relax.matmul": _legalize_product,
        "relax.take": legalize_take,
        "relax.index_tensor": legalize_index,
        _ROI_POOL: legalize_region_maxima(EXACT[_ROI_POOL]),
        _ROI_ALIGN: legalize_region_samples(EXACT[_ROI_ALIGN]),
        RECURRENT: legalize_recurrent,
        RUNNING: legalize_running_extreme,
        LOGSUMEXP: legalize_running_logsumexp,
        SEARCH: legalize_search,
        TREES: legalize_trees,
        "relax.median": legalize_median,
        "relax.scatter_elements": legalize_scatter_elements,
        "relax.scatter_nd": legalize_scatter_nd,
        "relax.nn.attention": _legalize_attention,
        "relax.nn.attention_bias": _legalize_attention,
    }


def _legalize_product(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A product, unless its matrix of constants says that it is something that takes less."""
    banded = legalize_banded(builder, call)
    return legalize_product(builder, call) if banded is None else banded


def _legalize_convolution(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """TVM's direct convolution over (rows, columns, channels) in NHWC.

    One to three spatial axes go the same way.
    """
    attrs = call.attrs
    rank, layout = len(attrs.strides), str(attrs.data_layout)
    if str(attrs.out_layout) not in ("", layout) or len(layout) != rank + 2:
        return default_legalization(builder, call)
    grouped = legalize_groups(builder, call)
    if grouped is not None:
        return grouped
    space = SPATIAL[rank]
    dtype = str(call.ty.dtype)
    data, weights = call.args
    kernel_layout = str(attrs.kernel_layout)
    groups = int(attrs.groups)
    if groups > 1 and isinstance(weights, GenericConst) and layout == f"N{space}C":
        # Neighbouring threads compute neighbouring channels: their weights should lie side by side.
        side_by_side = f"{space}IO"
        array = weights.value.numpy().transpose([kernel_layout.index(c) for c in side_by_side])
        weights = relax.const(np.ascontiguousarray(array), str(weights.ty.dtype))
        kernel_layout = side_by_side

    def convolution(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        return topi.nn.conv(
            x,
            w,
            [int(v) for v in attrs.strides],
            [int(v) for v in attrs.padding],
            [int(v) for v in attrs.dilation],
            groups,
            layout,
            kernel_layout,
            dtype,
        )

    return builder.call_te(
        convolution,
        data,
        weights,
        primfunc_name_hint=f"conv{rank}d",
        primfunc_attrs=OUT_FUSABLE,
    )


def _legalize_attention(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``softmax(q k^T * scale [+ bias]) v`` over (batch, sequence, heads, head size)."""
    attrs = call.attrs
    if attrs.window_size is not None:
        return default_legalization(builder, call)

    def emit(expr: relax.Expr) -> relax.Var:
        inner = builder.normalize(expr)
        legalize = legalizations().get(str(inner.op.name)) or inner.op.get_attr("FLegalize")
        return builder.emit(legalize(builder, inner))

    q, k, v = call.args[:3]
    (_, rows, _, size), columns = static_shape(q), static_shape(k)[1]
    dtype = str(call.ty.dtype)
    scale = float(attrs.scale) if attrs.scale is not None else size**-0.5
    heads_first = [0, 2, 1, 3]
    left = emit(relax.op.permute_dims(q, heads_first))
    right = emit(relax.op.permute_dims(k, [0, 2, 3, 1]))
    scores = emit(relax.op.matmul(left, right))
    scores = emit(relax.op.multiply(scores, relax.const(scale, dtype)))
    if len(call.args) > 3:
        scores = emit(relax.op.add(scores, call.args[3]))
    if attrs.causal_mask is not None:
        offset = abs(rows - columns) if str(attrs.causal_mask) == "BottomRight" else 0
        scores = builder.emit(_causal(builder, scores, offset))
    weights = emit(relax.op.nn.softmax(scores, axis=-1))
    product = emit(relax.op.matmul(weights, emit(relax.op.permute_dims(v, heads_first))))
    result = builder.normalize(relax.op.permute_dims(product, heads_first))
    return result.op.get_attr("FLegalize")(builder, result)


def _legalize_adaptive_pool(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Averages over windows of one size, those shorter than it with a guard.

    TVM's own has loops whose bounds depend on the place, which no schedule can take apart.
    """
    layout = str(call.attrs.layout)
    if str(call.attrs.out_layout) not in ("", layout):
        return default_legalization(builder, call)
    spatial = [axis for axis, letter in enumerate(layout) if letter not in "NC"]
    dtype = str(call.ty.dtype)
    outs, ins = static_shape(call), static_shape(call.args[0])
    edges = {
        a: [(i * ins[a] // outs[a], -(-(i + 1) * ins[a] // outs[a])) for i in range(outs[a])]
        for a in spatial
    }
    longest = {a: max(end - begin for begin, end in pairs) for a, pairs in edges.items()}

    def pooled(x: te.Tensor) -> te.Tensor:
        taps = {a: te.reduce_axis((0, longest[a]), name=f"r{a}") for a in spatial}

        def begin(index: tuple[tirx.Expr, ...], a: int) -> tirx.Expr:
            return tirx.floordiv(index[a] * ins[a], outs[a])

        def size(index: tuple[tirx.Expr, ...], a: int) -> tirx.Expr:
            end = tirx.floordiv((index[a] + 1) * ins[a] + outs[a] - 1, outs[a])
            return end - begin(index, a)

        def term(*index: tirx.Expr) -> tirx.Expr:
            place = [begin(index, a) + taps[a] if a in taps else v for a, v in enumerate(index)]
            value = x(*place).astype(WIDE)
            inside = [taps[a] < size(index, a) for a in spatial if _uneven(edges[a])]
            if inside:
                value = tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, WIDE))
            return te.sum(value, axis=list(taps.values()))

        def mean(*index: tirx.Expr) -> tirx.Expr:
            count = math.prod((size(index, a) for a in spatial), start=tirx.const(1, "int64"))
            return (sums(*index) / count.astype(WIDE)).astype(dtype)

        sums = te.compute(outs, term, name="pool_sum")
        return te.compute(outs, mean, name="pool_mean")

    return builder.call_te(pooled, call.args[0], primfunc_name_hint="adaptive_avg_pool")


def _uneven(edges: list[tuple[int, int]]) -> bool:
    return len({end - begin for begin, end in edges}) > 1


def _causal(builder: relax.BlockBuilder, scores: relax.Expr, offset: int) -> relax.Call:
    """Scores of keys behind a query's own place (shifted by ``offset``) become minus infinity."""

    def masked(x: te.Tensor) -> te.Tensor:
        lowest = tirx.const(float("-inf"), x.dtype)
        return te.compute(
            x.shape,
            lambda b, h, i, j: tirx.Select(j <= i + offset, x[b, h, i, j], lowest),
            name="causal",
        )

    return builder.call_te(masked, scores, primfunc_name_hint="causal_mask")
