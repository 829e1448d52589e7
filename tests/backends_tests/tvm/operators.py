"""Every operator that an importer can bring, one small graph each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tvm import relax

from tests.backends_tests.tvm.operator_case import Body, Emit, Operator, call, constant, of

op = relax.op


def operators() -> Iterator[Operator]:
    """All of them."""
    yield from _elementwise()
    yield from _integers()
    yield from _reductions()
    yield from _movement()
    yield from _lookups()
    yield from _made()
    yield from _layers()
    yield from _images()


def _elementwise() -> Iterator[Operator]:
    unary = (
        *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf"),
        *("exp", "floor", "isfinite", "isinf", "isnan", "log", "negative", "round", "rsqrt"),
        *("sigmoid", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc"),
    )
    for name in unary:
        function = getattr(op, name)
        above = name == "acosh"

        def body(emit: Emit, x: Any, function: Any = function, above: bool = above) -> Any:
            return function(emit(op.add(x, x)) if above else x)

        yield of(name, [(3, 37)], body)
    binary = (
        *("add", "atan2", "divide", "equal", "floor_divide", "floor_mod", "greater"),
        *("greater_equal", "less", "less_equal", "log_add_exp", "maximum", "minimum", "mod"),
        *("multiply", "not_equal", "power", "subtract"),
    )
    for name in binary:
        yield of(name, [(3, 37), (37,)], call(getattr(op, name)))
    for name in ("gelu", "gelu_tanh", "relu", "selu", "silu", "softplus", "leakyrelu", "relu6"):
        yield of(f"nn.{name}", [(3, 37)], call(getattr(op.nn, name)))
    yield of("nn.prelu", [(3, 37), (37,)], call(op.nn.prelu, axis=1))
    yield of("clip", [(3, 37)], call(op.clip, 0.6, 0.9))
    yield of("nn.dropout", [(3, 37)], lambda emit, x: emit(op.nn.dropout(x))[0])
    for kind in ("int32", "int64", "bool", "float32", "float16", "float64"):
        yield of(f"astype-{kind}", [(3, 37)], call(op.astype, kind))
    yield of("where", [(3, 37), (3, 37)], lambda emit, x, y: op.where(emit(op.less(x, y)), x, y))


def _integers() -> Iterator[Operator]:
    binary = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
    more = ("add", "multiply", "subtract", "maximum", "less", "equal")
    for kind in ("int32", "int64", "uint8", "int8"):
        for name in (*binary, *more):
            pair = (((3, 37), kind), ((37,), kind))
            yield Operator(f"{name}-{kind}", pair, call(getattr(op, name)))
    for name in ("logical_and", "logical_or", "logical_xor"):
        pair = (((3, 37), "bool"), ((37,), "bool"))
        yield Operator(name, pair, call(getattr(op, name)))
    yield Operator("logical_not", (((3, 37), "bool"),), call(op.logical_not))
    yield Operator("bitwise_not", (((3, 37), "int32"),), call(op.bitwise_not))
    for kind in ("int32", "int64"):
        for name in ("floor_divide", "floor_mod", "divide", "mod"):

            def body(emit: Emit, x: Any, y: Any, name: str = name, kind: str = kind) -> Any:
                return getattr(op, name)(x, emit(op.add(y, relax.const(1, kind))))

            yield Operator(f"{name}-{kind}", (((3, 37), kind), ((37,), kind)), body)
        yield Operator(f"sum-{kind}", (((3, 37), kind),), call(op.sum, axis=[1]))
        yield Operator(f"max-{kind}", (((3, 37), kind),), call(op.max, axis=[1]))
        yield Operator(f"cumsum-{kind}", (((3, 37), kind),), call(op.cumsum, axis=1))
        yield Operator(f"take-{kind}", (((9, 5), ""), ((3, 2), kind)), call(op.take, axis=0))
        yield Operator(f"sort-{kind}", (((3, 37), kind),), call(op.sort, axis=1), 100)
    for kind in ("int8", "uint8"):
        pair = (((3, 16), kind), ((16, 5), kind))
        yield Operator(f"matmul-{kind}", pair, call(op.matmul, out_dtype="int32"))

        def rescaled(emit: Emit, x: Any, kind: str = kind) -> Any:
            scale, zero = relax.const(0.02, "float32"), relax.const(3, kind)
            whole = emit(op.quantize(x, scale, zero, axis=-1, out_dtype=kind))
            return op.dequantize(whole, scale, zero, axis=-1, out_dtype="float32")

        def given(emit: Emit, x: Any, kind: str = kind) -> Any:
            scale, zero = relax.const(0.02, "float32"), relax.const(3, kind)
            return op.dequantize(x, scale, zero, axis=-1, out_dtype="float32")

        def by_channel(emit: Emit, x: Any, kind: str = kind) -> Any:
            scale = constant([0.02, 0.03, 0.01], "float32")
            zero = constant([1, 2, 3], kind)
            return op.quantize(x, scale, zero, axis=1, out_dtype=kind)

        yield Operator(f"quantize-{kind}", (((2, 3, 37), "float32"),), rescaled)
        yield Operator(f"dequantize-{kind}", (((2, 3, 37), kind),), given)
        yield Operator(f"quantize_channels-{kind}", (((2, 3, 37), "float32"),), by_channel)


def _reductions() -> Iterator[Operator]:
    for name in ("max", "mean", "median", "min", "prod", "std", "sum", "variance"):
        function = getattr(op, name)
        last = (lambda emit, x: emit(op.median(x, axis=1))[0]) if name == "median" else None
        yield of(f"{name}-last", [(3, 37)], last or call(function, axis=[1]))
        if name == "median":
            continue
        yield of(f"{name}-first", [(5, 3, 7)], call(function, axis=[0], keepdims=True))
        yield of(f"{name}-all", [(5, 3, 7)], call(function))
    for name in ("argmax", "argmin"):
        yield of(name, [(3, 37)], call(getattr(op, name), axis=1))
        yield of(f"{name}-all", [(3, 7)], call(getattr(op, name)))
    for name in ("cumsum", "cumprod"):
        yield of(f"{name}-last", [(3, 37)], call(getattr(op, name), axis=1))
        yield of(f"{name}-first", [(7, 5, 3)], call(getattr(op, name), axis=0))
        yield of(f"{name}-exclusive", [(3, 37)], call(getattr(op, name), axis=1, exclusive=True))
    yield of("sort", [(3, 37)], call(op.sort, axis=1))
    yield of("sort-first", [(37, 3)], call(op.sort, axis=0, descending=True))
    yield of("argsort", [(3, 37)], call(op.argsort, axis=1, dtype="int64"))
    yield of("topk", [(3, 37)], call(op.topk, k=5, axis=1, dtype="int64"))
    yield of("topk-values", [(3, 37)], call(op.topk, k=5, axis=1, ret_type="values"))


def _movement() -> Iterator[Operator]:
    yield of("broadcast_to", [(3, 1)], call(op.broadcast_to, (2, 3, 37)))
    yield of("concat", [(3, 5), (3, 7)], lambda emit, x, y: op.concat([x, y], axis=1))
    yield of("stack", [(3, 5), (3, 5)], lambda emit, x, y: op.stack([x, y], axis=1))
    yield of("expand_dims", [(3, 5)], call(op.expand_dims, axis=[1, 3]))
    yield of("flatten", [(3, 5)], call(op.flatten))
    yield of("flip", [(3, 5)], call(op.flip, axis=1))
    yield of("permute_dims", [(3, 5, 7)], call(op.permute_dims, [2, 0, 1]))
    yield of("repeat", [(3, 5)], call(op.repeat, 3, axis=1))
    yield of("reshape", [(3, 10)], call(op.reshape, (5, 6)))
    yield of("squeeze", [(3, 1, 5)], call(op.squeeze, axis=[1]))
    yield of("split", [(3, 12)], lambda emit, x: emit(op.split(x, 3, axis=1)))
    yield of("split-uneven", [(3, 12)], lambda emit, x: emit(op.split(x, [2, 7], axis=1)))
    yield of(
        "split-concat",
        [(3, 12)],
        lambda emit, x: op.concat(emit(op.split(x, 3, axis=1)), axis=0),
    )
    yield of("strided_slice", [(9, 12)], call(op.strided_slice, [0, 1], [1, 2], [8, 11], [2, 3]))
    yield of("strided_slice-back", [(9,)], call(op.strided_slice, [0], [8], [-10], [-1]))
    yield of("tile", [(3, 5)], call(op.tile, (2, 3)))
    yield of("tril", [(7, 7)], call(op.tril, 1))
    yield of("triu", [(7, 7)], call(op.triu, -1))
    for mode in ("constant", "reflect", "replicate", "circular"):
        pads = call(op.nn.pad, [0, 0, 0, 0, 2, 1, 1, 2], pad_mode=mode)
        yield of(f"nn.pad-{mode}", [(1, 2, 6, 7)], pads)
    yield of("nn.pixel_shuffle", [(1, 8, 3, 5)], call(op.nn.pixel_shuffle, 2))
    yield of("meshgrid", [(3,), (5,)], lambda emit, x, y: emit(op.meshgrid([x, y], "ij")))
    yield of("outer", [(3,), (5,)], call(op.outer))
    yield of(
        "layout_transform",
        [(2, 8, 3)],
        call(op.layout_transform, index_map=lambda n, c, w: (n, c // 4, w, c % 4)),
    )
    yield of(
        "slice_scatter",
        [(9, 5), (3, 5)],
        lambda emit, x, y: op.slice_scatter(x, y, 1, 7, 2, 0),
    )


def _lookups() -> Iterator[Operator]:
    rows = ((9, 5), "")
    yield Operator("take", (rows, ((3, 2), "int64")), call(op.take, axis=0))
    yield Operator("take-columns", (rows, ((3,), "int32")), call(op.take, axis=1))
    wide = ((9, 37), ""), ((3,), "int32")
    yield Operator("take-wide", wide, call(op.take, axis=0, mode="fast"))
    yield Operator("gather_elements", (rows, ((9, 3), "int64")), call(op.gather_elements, axis=1))
    yield Operator("gather_nd", (rows, ((4, 2), "int64")), call(op.gather_nd))
    yield Operator(
        "index_tensor",
        (rows, ((3,), "int64"), ((3,), "int64")),
        lambda emit, x, i, j: op.index_tensor(x, [i, j]),
    )
    for accumulate in (False, True):
        yield Operator(
            f"index_put-{accumulate}",
            (rows, ((1,), "int64"), ((1,), "int64"), ((1,), "")),
            lambda emit, x, i, j, v, accumulate=accumulate: op.index_put(
                x, (i, j), v, accumulate=accumulate
            ),
        )
    for reduction in ("update", "add", "mul", "max", "min", "mean"):
        yield Operator(
            f"scatter_elements-{reduction}",
            (rows, ((1, 5), "int64"), ((1, 5), "")),
            call(op.scatter_elements, axis=0, reduction=reduction),
        )
        if reduction != "mean":
            yield Operator(
                f"scatter_nd-{reduction}",
                (rows, ((1, 1), "int64"), ((1, 5), "")),
                call(op.scatter_nd, reduction=reduction),
            )
    yield Operator(
        "one_hot",
        (((3, 2), "int64"),),
        lambda emit, i: op.one_hot(i, relax.prim_value(1.0), relax.prim_value(0.0), 5, -1),
    )
    yield of(
        "bucketize",
        [(3, 5), (7,)],
        lambda emit, x, y: op.bucketize(x, emit(op.sort(y, axis=0))),
    )


def _made() -> Iterator[Operator]:
    """Tensors that are made of nothing, beside one that is given."""

    def beside(made: Callable[[], relax.Expr]) -> Body:
        return lambda emit, x: op.add(x, emit(op.astype(emit(made()), x.ty.dtype)))

    yield of("arange", [(7,)], beside(lambda: op.arange(0, 7, 1, "float32")))
    yield of("eye", [(3, 5)], beside(lambda: op.eye(3, 5, 1, "float32")))
    yield of("full", [(3, 5)], beside(lambda: op.full((3, 5), relax.const(2.0), "float32")))
    yield of(
        "hamming_window", [(9,)], beside(lambda: op.hamming_window(9, True, 0.54, 0.46, "float32"))
    )
    for name in ("zeros", "ones"):
        yield of(name, [(3, 5)], beside(lambda name=name: getattr(op, name)((3, 5), "float32")))
        like = getattr(op, f"{name}_like")
        yield of(f"{name}_like", [(3, 5)], lambda emit, x, like=like: op.add(x, emit(like(x))))
    yield of("full_like", [(3, 5)], lambda emit, x: op.full_like(x, relax.const(2.0)))
    yield of("eye_like", [(3, 5)], lambda emit, x: op.add(x, emit(op.eye_like(x))))


def _layers() -> Iterator[Operator]:
    for rank, letters in {1: "W", 2: "HW", 3: "DHW"}.items():
        side = (7, 6, 5)[:rank]
        first, last = f"NC{letters}", f"N{letters}C"
        for groups in (1, 4):
            x, w = (1, 8, *side), (12, 8 // groups, *(3,) * rank)
            pad = (1,) * rank * 2
            conv = call(getattr(op.nn, f"conv{rank}d"), padding=pad, groups=groups)
            yield of(f"nn.conv{rank}d-{groups}", [x, w], conv)
            back = call(
                getattr(op.nn, f"conv{rank}d_transpose"),
                strides=(2,) * rank,
                padding=pad,
                output_padding=(1,) * rank,
                groups=groups,
            )
            yield of(f"nn.conv{rank}d_transpose-{groups}", [x, (8, 3, *(3,) * rank)], back)
        dilated = call(
            getattr(op.nn, f"conv{rank}d"),
            strides=(2,) * rank,
            dilation=(2,) * rank,
            padding=(2,) * rank * 2,
            data_layout=last,
            kernel_layout=f"O{letters}I",
        )
        yield of(f"nn.conv{rank}d-last", [(1, *side, 8), (12, *(3,) * rank, 8)], dilated)
        for kind in ("max", "avg"):
            pool = getattr(op.nn, f"{kind}_pool{rank}d")
            window = {"pool_size": (3,) * rank, "strides": (2,) * rank, "padding": (1,) * rank * 2}
            for ceil in (False, True):
                yield of(
                    f"nn.{kind}_pool{rank}d-{ceil}",
                    [(1, 4, *side)],
                    call(pool, **window, ceil_mode=ceil, layout=first),
                )
            yield of(
                f"nn.{kind}_pool{rank}d-last", [(1, *side, 4)], call(pool, **window, layout=last)
            )
        yield of(
            f"nn.adaptive_avg_pool{rank}d",
            [(1, 4, *side)],
            call(getattr(op.nn, f"adaptive_avg_pool{rank}d"), (3,) * rank),
        )
    yield of("matmul", [(5, 37), (37, 11)], call(op.matmul))
    yield of("matmul-batched", [(2, 3, 5, 7), (3, 7, 11)], call(op.matmul))
    yield of("matmul-vectors", [(37,), (37,)], call(op.matmul))
    yield of("matmul-vector", [(5, 37), (37,)], call(op.matmul))
    yield of("linear", [(2, 5, 37), (11, 37), (11,)], call(op.linear))
    for subscripts, shapes in {
        "ij,jk->ik": [(5, 7), (7, 3)],
        "bhid,bhjd->bhij": [(2, 3, 5, 4), (2, 3, 6, 4)],
        "ii->i": [(5, 5)],
    }.items():
        yield of(
            f"einsum-{subscripts}",
            shapes,
            lambda emit, *x, subscripts=subscripts: op.einsum(tuple(x), subscripts),
        )
    yield of("nn.softmax", [(3, 37)], call(op.nn.softmax, axis=1))
    yield of("nn.softmax-first", [(7, 5, 3)], call(op.nn.softmax, axis=0))
    yield of("nn.log_softmax", [(3, 37)], call(op.nn.log_softmax, axis=1))
    yield of(
        "nn.batch_norm",
        [(2, 4, 5), (4,), (4,), (4,), (4,)],
        lambda emit, *x: emit(op.nn.batch_norm(*x, axis=1, training=False))[0],
    )
    yield of("nn.layer_norm", [(3, 37), (37,), (37,)], call(op.nn.layer_norm, axes=[-1]))
    yield of("nn.layer_norm-two", [(3, 5, 7), *[(5, 7)] * 2], call(op.nn.layer_norm, axes=[1, 2]))
    yield of("nn.rms_norm", [(3, 37), (37,)], call(op.nn.rms_norm, axes=[-1]))
    groups = call(op.nn.group_norm, num_groups=2, channel_axis=1, axes=[2, 3])
    yield of("nn.group_norm", [(2, 4, 5, 6), (4,), (4,)], groups)
    instance = call(op.nn.instance_norm, channel_axis=1, axes=[2, 3])
    yield of("nn.instance_norm", [(2, 4, 5, 6), (4,), (4,)], instance)
    tensor = (2, 9, 3, 8)
    yield of("nn.attention", [tensor] * 3, call(op.nn.attention))
    yield of("nn.attention-causal", [tensor] * 3, call(op.nn.attention, causal_mask="TopLeft"))
    yield of("nn.attention_bias", [*[tensor] * 3, (2, 3, 9, 9)], call(op.nn.attention))
    yield Operator(
        "nn.nll_loss",
        (((3, 5), ""), ((3,), "int64"), ((5,), "")),
        call(op.nn.nll_loss, reduction="mean"),
    )
    yield of("nn.cross_entropy_with_logits", [(3, 5)] * 2, call(op.nn.cross_entropy_with_logits))


def _images() -> Iterator[Operator]:
    for method in ("nearest_neighbor", "linear", "cubic"):
        for size in ((10, 12), (7, 5)):
            yield of(
                f"image.resize2d-{method}-{size[0]}",
                [(1, 3, 5, 6)],
                call(op.image.resize2d, size, layout="NCHW", method=method),
            )
        if method != "cubic":
            yield of(
                f"image.resize3d-{method}",
                [(1, 3, 5, 6, 4)],
                call(op.image.resize3d, (7, 9, 5), layout="NCDHW", method=method),
            )
    for method in ("bilinear", "nearest"):
        yield of(
            f"image.grid_sample-{method}",
            [(1, 3, 5, 6), (1, 2, 4, 7)],
            call(op.image.grid_sample, method=method),
        )
    yield of("image.affine_grid", [(1, 2, 3)], call(op.image.affine_grid, (4, 5)))

    def aligned(emit: Emit, x: Any, boxes: Any) -> Any:
        boxes = emit(op.multiply(boxes, constant([0, 1, 1, 6, 6], str(boxes.ty.dtype))))
        return op.vision.roi_align(x, boxes, (3, 3), 1.0, 2)

    yield of("vision.roi_align", [(1, 3, 8, 8), (2, 5)], aligned)
