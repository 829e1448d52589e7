"""Operators on shapes, layouts and values that a small case does not have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BuildContext
from collage.cost.reference import evaluate, largest_error
from collage.testing.graphs import constant, graph
from tests.backends_tests.whole_regions.regions import Regions

_TOLERANCE = {"float32": 1e-5, "float16": 3e-3}
Made = dict[str, tvm.IRModule]


class _Graphs:
    """Collects graphs of one operator each over one dtype."""

    def __init__(self, dtype: str) -> None:
        self.dtype, self.made = dtype, Made()

    def add(self, name: str, shapes: Sequence[Sequence[int]], body: Callable[..., Any]) -> None:
        self.made[name] = graph(shapes, lambda emit, *x: body(*x), self.dtype)

    def data(self, *shape: int, scale: float = 1.0) -> relax.Expr:
        return constant(*shape, scale=scale, dtype=self.dtype)


def _convolutions(g: _Graphs) -> None:
    data, nn = g.data, op.nn
    g.add("strided", [(2, 64, 17, 19)], lambda x: nn.conv2d(
        x, data(48, 64, 3, 3, scale=0.04), padding=1, strides=2
    ))  # fmt: skip
    g.add("depthwise", [(2, 32, 19, 19)], lambda x: nn.conv2d(
        x, data(32, 1, 3, 3, scale=0.3), padding=(0, 1, 2, 1), groups=32
    ))  # fmt: skip
    g.add("channels_last", [(1, 19, 17, 16)], lambda x: nn.conv2d(
        x, data(24, 3, 3, 16, scale=0.1), dilation=2, data_layout="NHWC", kernel_layout="OHWI"
    ))  # fmt: skip
    g.add("transposed", [(2, 32, 9, 9)], lambda x: nn.conv2d_transpose(
        x, data(32, 24, 4, 4, scale=0.06), padding=1, strides=2, output_padding=1
    ))  # fmt: skip
    g.add("transposed_groups", [(2, 32, 9, 9)], lambda x: nn.conv2d_transpose(
        x, data(32, 6, 5, 5, scale=0.1), padding=2, strides=3, output_padding=2, groups=4,
        dilation=2,
    ))  # fmt: skip
    g.add("line", [(2, 16, 40)], lambda x: nn.conv1d(x, data(24, 16, 5, scale=0.1), padding=2))
    g.add("volume", [(1, 16, 8, 9, 10)], lambda x: nn.conv3d(
        x, data(24, 16, 3, 3, 3, scale=0.05), padding=1
    ))  # fmt: skip
    g.add("volume_transposed", [(1, 16, 5, 6, 7)], lambda x: nn.conv3d_transpose(
        x, data(16, 12, 2, 2, 2, scale=0.1), strides=2
    ))  # fmt: skip


def _pictures(g: _Graphs) -> None:
    picture = (1, 16, 33, 35)
    g.add("average", [picture], lambda x: op.nn.avg_pool2d(
        x, (7, 7), (3, 3), (2, 2, 1, 3), ceil_mode=True
    ))  # fmt: skip
    g.add("average_with_padding", [picture], lambda x: op.nn.avg_pool2d(
        x, (5, 5), (2, 2), (2, 2), count_include_pad=True
    ))  # fmt: skip
    g.add("largest", [picture], lambda x: op.nn.max_pool2d(
        x, (3, 3), (2, 2), (1, 1), ceil_mode=True
    ))  # fmt: skip
    g.add("uneven", [picture], lambda x: op.nn.adaptive_avg_pool2d(x, (7, 5)))
    modes = [
        (method, coordinates, size)
        for method in ("linear", "cubic", "nearest_neighbor")
        for coordinates in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
        for size in ((20, 33), (5, 7), (2, 18))
    ]
    for method, coordinates, size in modes:
        g.add(f"resize-{method}-{coordinates}-{size}", [(1, 8, 10, 11)], lambda x, m=method,
              c=coordinates, s=size: op.image.resize2d(
                  x, s, method=m, coordinate_transformation_mode=c, rounding_method="floor"
              ))  # fmt: skip
    g.add("resize-last", [(1, 10, 11, 8)], lambda x: op.image.resize2d(x, (20, 25), layout="NHWC"))


def _rows(g: _Graphs) -> None:
    data = g.data
    g.add("sum", [(3, 8192)], lambda x: op.sum(x, 1))
    g.add("mean", [(64, 64, 40)], lambda x: op.mean(x, [0, 1]))
    g.add("softmax", [(7, 4096)], lambda x: op.nn.softmax(x, 1))
    g.add("layer_norm", [(7, 4096)], lambda x: op.nn.layer_norm(x, data(4096), data(4096), [-1]))
    g.add("middle", [(2, 32, 24, 24)], lambda x: op.nn.layer_norm(x, data(32), data(32), [1]))
    g.add("group_norm", [(2, 24, 24, 32)], lambda x: op.nn.group_norm(
        x, data(32), data(32), 8, 3, [1, 2]
    ))  # fmt: skip
    g.add("batch_norm_free", [(2, 32, 24, 24)], lambda x: op.nn.instance_norm(
        x, data(32), data(32), 1, [2, 3]
    ))  # fmt: skip
    g.add("cumsum", [(50, 640)], lambda x: op.cumsum(x, 1))
    g.add("softplus", [(50, 64)], lambda x: op.nn.softplus(x, beta=2.5))
    g.add("mish", [(50, 64)], lambda x: op.multiply(x, op.tanh(op.nn.softplus(x))))
    for name, low, high in (("above", -np.inf, 0.5), ("below", 0.0, np.inf)):
        g.add(name, [(50, 64)], lambda x, a=low, b=high: op.clip(x, a, b))
    g.add("product", [(33, 1024)], lambda x: op.matmul(x, data(1024, 77, scale=0.03)))
    g.add("products", [(4, 33, 128), (4, 128, 50)], op.matmul)
    g.add("scalars", [(), (3,)], op.add)
    g.add("to_scalar", [(5, 7)], op.max)
    bias = [*([(1, 65, 4, 32)] * 3), (1, 1, 65, 65)]
    g.add("causal", bias, lambda q, k, v, b: op.nn.attention_bias(
        q, k, v, b, causal_mask="TopLeft"
    ))  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float16", marks=pytest.mark.slow)])
def test_agree_with_the_reference(regions: Regions, dtype: str, context: BuildContext) -> None:
    if dtype != "float32" and regions.name == "onnxruntime":
        pytest.skip("its regions have no half precision")
    graphs = _Graphs(dtype)
    for family in (_convolutions, _pictures, _rows):
        family(graphs)
    library = regions.library(graphs.made, context)
    rng = np.random.default_rng()
    wrong = []
    for name, mod in graphs.made.items():
        shapes = [tuple(map(int, p.ty.shape)) for p in mod["main"].params]
        inputs = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
        for got, wanted in zip(library.run(name, inputs), evaluate(mod, inputs), strict=True):
            if not (off := largest_error(got, wanted)) < _TOLERANCE[dtype]:
                wrong.append(f"{name}: off by {off:.1e}")
    assert not wrong, "\n".join(wrong)


_INTEGERS: dict[str, Callable[..., Any]] = {
    **{
        name: lambda x, y, n=name: getattr(op, n)(x, y)
        for name in ("add", "subtract", "multiply", "maximum", "minimum")
    },
    "concat": lambda x, y: op.concat([x, y], 1),
}


def test_integers_keep_all_of_their_bits(regions: Regions, context: BuildContext) -> None:
    graphs = {
        name: graph([(40, 33)] * 2, lambda emit, *x, f=body: f(*x), "int32")
        for name, body in _INTEGERS.items()
    }
    library = regions.library(graphs, context)
    rng = np.random.default_rng()
    for limit in (3, 2**15, 2**25, 2**31 - 1):
        inputs = [rng.integers(-limit, limit, (40, 33)).astype(np.int32) for _ in range(2)]
        inputs[1][:, :4] = inputs[0][:, :4]
        inputs[1][:, 4:9] = inputs[0][:, 4:9] + 1
        for name, mod in graphs.items():
            with np.errstate(over="ignore"):
                (wanted,) = evaluate(mod, inputs)
            assert np.array_equal(library.run(name, inputs)[0], wanted), f"{name} below {limit}"


def test_numbers_that_are_none(regions: Regions, context: BuildContext) -> None:
    names = ("isnan", "isinf", "isfinite")
    graphs = {n: graph([(3, 5)], lambda emit, x, n=n: getattr(op, n)(x)) for n in names}
    library = regions.library(graphs, context)
    x = np.tile(np.array([np.nan, np.inf, 1.0, -np.inf, 0.0], np.float32), (3, 1))
    for name in names:
        assert np.array_equal(library.run(name, [x])[0], getattr(np, name)(x)), name


def test_halves_go_to_even_numbers(regions: Regions, context: BuildContext) -> None:
    x = np.tile(np.arange(-8.5, 9.0, dtype=np.float32), (5, 1))
    library = regions.library({"round": graph([x.shape], lambda emit, x: op.round(x))}, context)
    assert np.array_equal(library.run("round", [x])[0], np.rint(x))


def test_of_equal_values_the_first_is_found(regions: Regions, context: BuildContext) -> None:
    graphs = {n: graph([(9, 200)], lambda emit, x, n=n: getattr(op, n)(x, 1)) for n in
              ("argmax", "argmin")}  # fmt: skip
    library = regions.library(graphs, context)
    x = np.random.default_rng().integers(0, 3, (9, 200)).astype(np.float32)
    assert np.array_equal(library.run("argmax", [x])[0], x.argmax(1))
    assert np.array_equal(library.run("argmin", [x])[0], x.argmin(1))
