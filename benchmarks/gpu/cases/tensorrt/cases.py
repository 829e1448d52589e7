"""Cases of the TensorRT backend: every pattern, every dtype, odd sizes, batches, both layouts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases._case import CudaCase
from benchmarks.gpu.cases.tensorrt._case import LAST, PICTURE, case, weights
from benchmarks.gpu.cases.tensorrt._layers import layers


def cases() -> list[CudaCase]:
    """All of them, under unique names."""
    return [*_elementwise(), *_logic(), *_movement(), *_reductions(), *layers()]


def _positive(x: relax.Expr) -> relax.Expr:
    """At least 1.25, for what is defined there only."""
    return op.add(op.abs(x), relax.const(1.25))


def _small(x: relax.Expr) -> relax.Expr:
    """Between -0.9 and 0.9."""
    return op.multiply(op.tanh(x), relax.const(0.9))


def _halves(x: relax.Expr) -> relax.Expr:
    """Multiples of a half, every other one half way between integers."""
    steps = op.floor(op.multiply(x, relax.const(4.0)))
    return op.multiply(steps, relax.const(0.5))


def _elementwise() -> Iterator[CudaCase]:
    shape = (3, 5)
    for name in (
        "exp", "sin", "cos", "sinh", "cosh", "atan", "asinh", "ceil", "floor", "erf",
        "sign", "square", "sigmoid", "tanh", "abs", "negative",
    ):  # fmt: skip
        yield case(name, [shape], getattr(op, name))
    yield case("round", [(7, 9)], lambda x: op.round(_halves(x)))
    yield case("softplus", [shape], lambda x: op.nn.softplus(
        op.multiply(x, relax.const(200.0))
    ), "far")  # fmt: skip
    for function in (op.log, op.sqrt, op.rsqrt, op.acosh):
        yield case(function.__name__, [shape], lambda x, f=function: f(_positive(x)))
    for function in (op.asin, op.acos, op.atanh, op.tan):
        yield case(function.__name__, [shape], lambda x, f=function: f(_small(x)))
    for name in ("relu", "gelu", "gelu_tanh", "silu", "selu", "leakyrelu", "softplus"):
        function = getattr(op.nn, name)
        for dtype in ("float32", "float16", "bfloat16"):
            yield case(name, [(shape, dtype)], function)
    yield case("softplus", [shape], lambda x: op.nn.softplus(x, beta=2.5), "beta")
    for name in ("add", "subtract", "multiply", "maximum", "minimum"):
        function = getattr(op, name)
        yield case(name, [(2, 3, 5), (3, 1)], function, "broadcast")
        yield case(name, [((7,), "int64"), ((7,), "int64")], function)
    yield case("add", [(2, 3)], lambda x: op.add(x, relax.const(0.5)), "number")
    yield case("divide", [(2, 3, 5), (5,)], lambda a, b: op.divide(a, _positive(b)))
    yield case("floor_divide", [(2, 5), (2, 5)], lambda a, b: op.floor_divide(a, _positive(b)))
    yield case("power", [(2, 5)], lambda x: op.power(_positive(x), relax.const(1.5)))
    yield case("power", [((2, 5), "float16")], lambda x: op.power(
        op.abs(x), relax.const(3.0, "float16")
    ))  # fmt: skip
    yield case("prelu", [PICTURE], lambda x: op.nn.prelu(x, weights(4), 1))
    yield case("prelu", [LAST], lambda x: op.nn.prelu(x, weights(4), 3), "last")
    for dtype in ("float32", "float16", "int32", "int64"):
        yield case("clip", [((4, 5), dtype)], lambda x: op.clip(x, -1, 1))
    yield case("astype", [(3, 5)], lambda x: op.astype(x, "float16"), rtol=1e-3)
    yield case("astype", [((3, 5), "int32")], lambda x: op.astype(x, "float32"))
    yield case("astype", [(3, 5)], lambda x: op.astype(x, "int64"), "int64")


def _logic() -> Iterator[CudaCase]:
    pair = [((3, 5), "int32"), ((3, 5), "int32")]
    for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
        yield case(name, pair, getattr(op, name))
    yield case("less", [(3, 5), (5,)], op.less, "broadcast")
    for name in ("logical_and", "logical_or", "logical_xor"):
        yield case(name, [((3, 5), "bool"), ((3, 5), "bool")], getattr(op, name))
    yield case("logical_not", [((3, 5), "bool")], op.logical_not)
    yield case("where", [((3, 5), "bool"), ((3, 5), "float32"), ((5,), "float32")], op.where)


def _movement() -> Iterator[CudaCase]:
    yield case("reshape", [PICTURE], lambda x: op.reshape(x, (8, 99)))
    yield case("reshape", [((6,), "bool")], lambda x: op.reshape(x, (2, 3)))
    yield case("flatten", [PICTURE], op.flatten)
    yield case("batch_flatten", [PICTURE], op.nn.batch_flatten)
    yield case("squeeze", [(2, 1, 3, 1)], lambda x: op.squeeze(x, [1]))
    yield case("expand_dims", [(2, 3)], lambda x: op.expand_dims(x, [0, 2]))
    yield case("permute_dims", [PICTURE], lambda x: op.permute_dims(x, [0, 2, 3, 1]))
    yield case("permute_dims", [((2, 3, 5), "float16")], op.permute_dims, "reverse")
    yield case("layout_transform", [PICTURE], lambda x: op.layout_transform(
        x, lambda n, c, h, w: (n, h, w, c)
    ))  # fmt: skip
    yield case("concat", [(2, 3), (2, 4)], lambda a, b: op.concat([a, b], 1))
    yield case("stack", [(2, 3), (2, 3)], lambda a, b: op.stack([a, b], 1))
    yield case("split", [(2, 9)], lambda x: op.split(x, [1, 4], -1))
    yield case("strided_slice", [PICTURE], lambda x: op.strided_slice(
        x, [1, 2], [1, -8], [3, 9], [1, 2]
    ))  # fmt: skip
    yield case("strided_slice", [(2, 7)], lambda x: op.strided_slice(
        x, [1], [-1], [-100], [-2]
    ), "backward")  # fmt: skip
    border = (0, 0, 0, 0, 1, 2, 3, 1)
    yield case("pad", [PICTURE], lambda x: op.nn.pad(x, border, "constant", 1.5))
    for mode in ("edge", "reflect"):
        yield case("pad", [PICTURE], lambda x, m=mode: op.nn.pad(x, border, m), mode)
    yield case("broadcast_to", [(2, 1)], lambda x: op.broadcast_to(x, (4, 2, 3)))
    yield case("tile", [(2, 3)], lambda x: op.tile(x, (2, 3, 1)))
    yield case("flip", [(2, 3)], lambda x: op.flip(x, 1))
    indices = relax.const(np.array([[6, 0, 3], [2, 2, 5]]), "int64")
    yield case("take", [(7, 3)], lambda x: op.take(x, indices, 0))
    yield case("take", [(2, 7, 3)], lambda x: op.take(x, indices, 1), "middle")
    far = relax.const(np.array([-3, 1, 99], np.int32))
    yield case("take", [(7, 3)], lambda x: op.take(x, far, 1, mode="clip"), "clip")
    rows = relax.const(np.array([[2, 0, 1], [0, 2, 2]]), "int64")
    yield case("gather_elements", [(3, 3)], lambda x: op.gather_elements(x, rows, 0))
    pairs = relax.const(np.array([[0, 2], [1, 0], [1, 2]]), "int64")
    yield case("gather_nd", [(2, 3, 5)], lambda x: op.gather_nd(x, pairs))
    batched = relax.const(np.array([[2], [0]]), "int64")
    yield case("gather_nd", [(2, 3, 5)], lambda x: op.gather_nd(x, batched, 1), "batched")
    yield case("gather_nd", [((2, 3, 5), "bool")], lambda x: op.gather_nd(x, pairs))
    yield case("gather_elements", [((3, 3), "int64")], lambda x: op.gather_elements(x, rows, 0))
    yield case("take", [((7, 3), "bool")], lambda x: op.take(x, indices, 0))
    resizes = {
        "up": {"method": "linear", "coordinate_transformation_mode": "half_pixel"},
        "nearest": {
            "method": "nearest_neighbor",
            "coordinate_transformation_mode": "asymmetric",
            "rounding_method": "floor",
        },
        "cubic": {"method": "cubic", "coordinate_transformation_mode": "align_corners"},
    }
    for what, attributes in resizes.items():
        for layout, shape in (("NCHW", PICTURE), ("NHWC", LAST)):
            resize = lambda x, a=attributes, y=layout: op.image.resize2d(  # noqa: E731
                x, (18, 22), layout=y, **a
            )
            yield case("resize2d", [shape], resize, f"{what}-{layout}", rtol=1e-3)


def _reductions() -> Iterator[CudaCase]:
    for name in ("sum", "mean", "max", "min", "prod", "variance", "std"):
        function = getattr(op, name)
        yield case(name, [PICTURE], lambda x, f=function: f(x, [2, 3], True))
        yield case(name, [((5, 7), "float16")], lambda x, f=function: f(x, -1))
    yield case("mean", [LAST], lambda x: op.mean(x, [1, 2]), "last")
    yield case("sum", [((5, 7), "int64")], lambda x: op.sum(x, 1))
    yield case("argmax", [PICTURE], lambda x: op.argmax(x, 1))
    yield case("argmax", [(17,)], op.argmax, "all")
    yield case("argmin", [((5, 7), "float16")], lambda x: op.argmin(x, -1, True))
    for name in ("softmax", "log_softmax"):
        function = getattr(op.nn, name)
        for dtype in ("float32", "float16", "bfloat16"):
            yield case(name, [((2, 4, 7), dtype)], function)
        yield case(name, [PICTURE], lambda x, f=function: f(x, 1), "middle")
    for dtype in ("float32", "float16", "bfloat16"):
        row = [weights(11, dtype=dtype, seed=seed) for seed in (1, 2)]
        yield case("layer_norm", [((3, 11), dtype)], lambda x, r=row: op.nn.layer_norm(x, *r, [-1]))
        yield case("rms_norm", [((3, 11), dtype)], lambda x, r=row: op.nn.rms_norm(x, r[0], [-1]))
    both = [weights(9, 11, seed=seed) for seed in (1, 2)]
    yield case("layer_norm", [PICTURE], lambda x: op.nn.layer_norm(x, *both, [-2, -1]), "two")
    four = [weights(4, seed=seed) for seed in (1, 2)]
    yield case("group_norm", [PICTURE], lambda x: op.nn.group_norm(x, *four, 2, 1, [2, 3]))
    yield case("instance_norm", [PICTURE], lambda x: op.nn.instance_norm(x, *four, 1, [2, 3]))
    spread = relax.const(np.linspace(0.5, 2.0, 4, dtype=np.float32))
    yield case("batch_norm", [PICTURE], lambda x: relax.TupleGetItem(
        op.nn.batch_norm(x, *four, weights(4, seed=3), spread, 1, training=False), 0
    ))  # fmt: skip
