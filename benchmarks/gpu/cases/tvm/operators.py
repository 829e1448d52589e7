"""TVM's operators in half precision: long sums of values that do not cancel, rounded once.

Inputs are made positive and reductions long, so that a kernel that accumulates in float16 or
bfloat16 is off by many times of what is allowed: one rounding of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tvm
from tvm import relax

from benchmarks.gpu.cases._case import CudaCase
from collage.testing.graphs import graph

RTOL = {"float16": 2.0**-11 * 1.1, "bfloat16": 2.0**-8 * 1.1}
"""Half a unit in the last place of the largest value, and a little for float32's own roundings."""

SAMPLE = frozenset(
    f"{name}-{dtype}"
    for name, dtype in (
        *(("conv1d_transpose", "float16"), ("conv2d_channels_last", "float16")),
        *(("matmul_row", "float16"), ("mean_pixels", "float16"), ("sum_columns", "bfloat16")),
        *(("softmax", "bfloat16"), ("layer_norm", "bfloat16"), ("cumsum_last", "float16")),
        *(("avg_pool1d", "float16"), ("resize2d_linear", "bfloat16"), ("cumprod", "bfloat16")),
        *(("scatter_nd", "float16"), ("sum_of_all", "float16"), ("argmax_columns", "float16")),
        *(("max_rows", "bfloat16"), ("min_columns", "bfloat16")),
    )
)
"""Cases for every day: one of each kind."""

Emit = Callable[[relax.Expr], relax.Var]
Body = Callable[..., relax.Expr]
op = relax.op

_PIXELS = 112 * 112

_NO_BFLOAT16 = ("group_norm", "instance_norm")
"""Relax says of these that bfloat16 is no float."""


class _Operators:
    """Graphs of one operator each, by name, for one data type."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.random = np.random.default_rng(0)

    def all(self) -> Iterator[tuple[str, list[tuple[int, ...]], Body]]:
        """Names, shapes of the inputs, and what is computed of their absolute values."""
        yield from self._convolutions()
        yield from self._products()
        yield from self._reductions()
        yield from self._norms()
        yield from self._pools()
        yield from self._images()

    def weights(self, *shape: int, terms: int = 1) -> relax.Expr:
        """Positive constants around one over the number of terms that are summed."""
        array = self.random.uniform(0.5, 1.5, shape) / terms
        return relax.const(array.astype(self.dtype), self.dtype)

    def _convolutions(self) -> Iterator[tuple[str, list[tuple[int, ...]], Body]]:
        spatial = {1: "W", 2: "HW", 3: "DHW"}
        for rank, letters in spatial.items():
            plain = getattr(op.nn, f"conv{rank}d")
            back = getattr(op.nn, f"conv{rank}d_transpose")
            side, kernel = {1: (9, 9), 2: (5, 5), 3: (4, 3)}[rank]
            window = (kernel,) * rank
            channels = 4096 // kernel**rank
            first = (1, channels, *(side,) * rank)
            last = (1, *(side,) * rank, channels)
            pad = (kernel // 2,) * rank
            terms = channels * kernel**rank
            w = self.weights(16, channels, *window, terms=terms)
            w_last = self.weights(16, *window, channels, terms=terms)
            w_back = self.weights(channels, 16, *window, terms=channels)
            by_layout = {
                "first": (first, w, f"NC{letters}", f"OI{letters}"),
                "last": (last, w_last, f"N{letters}C", f"O{letters}I"),
            }
            for name, (shape, weights, layout, kernel_layout) in by_layout.items():
                layouts = {"data_layout": layout, "kernel_layout": kernel_layout}
                yield (
                    f"conv{rank}d_channels_{name}",
                    [shape],
                    _partial(plain, weights, padding=pad * 2, **layouts),
                )
            # The type of the result is that of the sums too, in TVM's own reading of it.
            yield (
                f"conv{rank}d_transpose",
                [first],
                _partial(back, w_back, strides=(2,) * rank, out_dtype=self.dtype),
            )
        grouped = self.weights(8, 512, 3, 3, terms=4608)
        depthwise = self.weights(8, 1, 31, 31, terms=961)
        yield "conv2d_grouped", [(1, 1024, 5, 5)], _partial(op.nn.conv2d, grouped, groups=2)
        yield "conv2d_depthwise", [(1, 8, 40, 40)], _partial(op.nn.conv2d, depthwise, groups=8)
        squeeze = self.weights(24, 2304, 1, 1, terms=2304)
        yield "conv2d_of_one_pixel", [(1, 2304, 1, 1)], _partial(op.nn.conv2d, squeeze)

    def _products(self) -> Iterator[tuple[str, list[tuple[int, ...]], Body]]:
        def attention(emit: Emit, q: Any, k: Any, v: Any) -> Any:
            return op.nn.attention(q, k, v)

        def product(emit: Emit, x: Any, y: Any) -> Any:
            return op.matmul(x, y, out_dtype=self.dtype)

        def summed(emit: Emit, x: Any, y: Any) -> Any:
            return op.einsum((x, y), "bij,bkj->bik")

        depth = 4096
        yield "matmul", [(33, depth), (depth, 40)], product
        yield "matmul_row", [(1, depth), (depth, 40)], product
        yield "matmul_batched", [(3, 17, depth), (3, depth, 24)], product
        yield "matmul_vectors", [(depth,), (depth, 24)], product
        yield "matmul_broadcast", [(2, 3, 5, depth), (depth, 7)], product
        yield "einsum", [(2, 5, depth), (2, 7, depth)], summed
        yield "attention", [(1, 8, 2, 64), (1, 4096, 2, 64), (1, 4096, 2, 64)], attention

    def _reductions(self) -> Iterator[tuple[str, list[tuple[int, ...]], Body]]:
        for name in ("sum", "mean", "variance", "std"):
            function = getattr(op, name)
            scale = relax.const(np.asarray(1 / 64 if name == "sum" else 1, self.dtype), self.dtype)

            def reduced(emit: Emit, x: Any, function: Any = function, scale: Any = scale) -> Any:
                return function(emit(op.multiply(x, scale)), axis=[2, 3])

            yield f"{name}_pixels", [(2, 9, 112, 112)], reduced
            yield f"{name}_rows", [(5, _PIXELS)], _partial(function, axis=[1])
            yield f"{name}_columns", [(_PIXELS, 24)], _partial(function, axis=[0])
        # One number of all that there is, which is rounded by a stage without an axis.
        yield "sum_of_all", [(_PIXELS,)], _partial(op.sum)
        # Results of 64 bits beside each other, of operands of 16.
        yield "argmax_columns", [(300, 64)], _partial(op.argmax, axis=0)
        yield "max_rows", [(300, 1000)], _partial(op.max, axis=[1])
        yield "min_columns", [(300, 64)], _partial(op.min, axis=[0])
        yield "sum_few_columns", [(_PIXELS, 3)], _partial(op.sum, axis=[0])
        yield "prod", [(300, 24)], _partial(op.prod, axis=[1])
        yield "cumsum_last", [(6, 4096)], _partial(op.cumsum, axis=1)
        yield "cumsum_first", [(4096, 6)], _partial(op.cumsum, axis=0)
        yield "cumprod", [(300, 24)], _partial(op.cumprod, axis=1)

        # Threads of its own, behind a stage that has none.
        pairs = relax.const(np.array([[0, 20], [2, 3], [29, 0]], "int64"), "int64")
        yield (
            "scatter_nd",
            [(30, 24, 8), (3, 8)],
            lambda emit, x, values: op.scatter_nd(x, pairs, values, "update"),
        )
        # As many addends for a place as there are edges into a node, and more.
        edges = np.random.default_rng(1).integers(0, 24, (300, 1))
        nodes = relax.const(edges, "int64")
        columns = relax.const(np.tile(edges[:257], (1, 5)), "int64")
        yield (
            "scatter_nd_added",
            [(24, 20), (300, 20)],
            lambda emit, x, values: op.scatter_nd(x, nodes, values, "add"),
        )
        yield (
            "scatter_elements_added",
            [(24, 6), (257, 5)],
            lambda emit, x, values: op.scatter_elements(x, columns, values, 0, "add"),
        )
        for reduction in ("mul", "max", "min"):
            yield (
                f"scatter_nd_{reduction}",
                [(24, 20), (300, 20)],
                lambda emit, x, values, how=reduction: op.scatter_nd(x, nodes, values, how),
            )
        yield (
            "scatter_nd_put",
            [(24, 20), (300, 20)],
            lambda emit, x, values: op.scatter_nd(x, nodes, values, "update"),
        )
        yield (
            "scatter_elements_put",
            [(24, 6), (257, 5)],
            lambda emit, x, values: op.scatter_elements(x, columns, values, 0, "update"),
        )

        def in_order(emit: Emit, x: Any, y: Any) -> Any:
            best = emit(op.topk(x, 7, 1, "both", True, "int64"))
            found = [emit(relax.TupleGetItem(best, place)) for place in range(2)]
            places = emit(op.argsort(y, 0, False, "int32"))
            return relax.Tuple([*found, places, emit(op.sort(y, 0, True))])

        yield "in_order", [(5, 100), (125, 3)], in_order
        # Loops that TVM wrote out for a processor.
        places = relax.const(np.array([0, 2, 5], "int64"), "int64")
        yield (
            "index_put",
            [(30, 24), (3,)],
            lambda emit, x, values: op.index_put(x, (places, places), values, accumulate=True),
        )

    def _norms(self) -> Iterator[tuple[str, list[tuple[int, ...]], Body]]:
        long = self.weights(_PIXELS), self.weights(_PIXELS)
        few = self.weights(8), self.weights(8)
        yield "softmax", [(5, _PIXELS)], _partial(op.nn.softmax, axis=1)
        yield "softmax_columns", [(_PIXELS, 6)], _partial(op.nn.softmax, axis=0)
        yield "log_softmax", [(5, _PIXELS)], _partial(op.nn.log_softmax, axis=1)
        yield "layer_norm", [(5, _PIXELS)], _partial(op.nn.layer_norm, *long, axes=[-1])
        yield "rms_norm", [(5, _PIXELS)], _partial(op.nn.rms_norm, long[0], axes=[-1])
        groups = {"num_groups": 2, "channel_axis": 1, "axes": [2, 3]}
        yield "group_norm", [(1, 8, 56, 56)], _partial(op.nn.group_norm, *few, **groups)
        one = {"channel_axis": 1, "axes": [2, 3]}
        yield "instance_norm", [(1, 8, 112, 112)], _partial(op.nn.instance_norm, *few, **one)

    def _pools(self) -> Iterator[tuple[str, list[tuple[int, ...]], Body]]:
        yield "avg_pool1d", [(1, 6, 5000)], _partial(op.nn.avg_pool1d, pool_size=(4096,))
        yield "avg_pool2d", [(1, 6, 112, 112)], _partial(op.nn.avg_pool2d, pool_size=(112, 112))
        yield "avg_pool3d", [(1, 3, 18, 18, 18)], _partial(op.nn.avg_pool3d, pool_size=(16,) * 3)
        for rank, shape in {1: (12544,), 2: (113, 113), 3: (24, 24, 24)}.items():
            pool = getattr(op.nn, f"adaptive_avg_pool{rank}d")
            yield f"adaptive_avg_pool{rank}d", [(1, 4, *shape)], _partial(pool, (2,) * rank)

    def _images(self) -> Iterator[tuple[str, list[tuple[int, ...]], Body]]:
        for method in ("linear", "cubic"):
            resize = _partial(op.image.resize2d, (47, 31), layout="NCHW", method=method)
            yield f"resize2d_{method}", [(1, 3, 20, 20)], resize


def _partial(function: Any, *more: Any, **named: Any) -> Body:
    return lambda emit, x: function(x, *more, **named)


def cases() -> list[CudaCase]:
    """Every operator in both types."""
    found = []
    for dtype, rtol in RTOL.items():
        for name, shapes, body in _Operators(dtype).all():
            if dtype == "bfloat16" and name in _NO_BFLOAT16:
                continue
            module = _of_positive(shapes, body, dtype)
            found.append(CudaCase(f"{name}-{dtype}", "tvm", "tvm", module, rtol=rtol))
    return found


def _of_positive(shapes: list[tuple[int, ...]], body: Body, dtype: str) -> tvm.IRModule:
    def positive(emit: Emit, *inputs: relax.Var) -> relax.Expr:
        return body(emit, *(emit(op.abs(x)) for x in inputs))

    return graph(shapes, positive, dtype)
