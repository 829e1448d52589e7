"""TVM's kernels at the sizes that networks have: what the yardstick of single kernels times.

The cases of ``tvm.py`` show that a family is right, at sizes even and odd; these show whether it is
fast, and that it is still right where reductions are long and results are few. Products and
convolutions here are those that no library need be asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from benchmarks.gpu.cases._case import CudaCase
from benchmarks.gpu.cases.tvm._convolution_shapes import convolutions
from benchmarks.gpu.cases.tvm._shape import Emit, Shape

RTOL = {"float16": 5e-3, "float32": 3e-4, "bfloat16": 3e-2}
op = relax.op


def _norms() -> list[Shape]:
    def group(groups: int, axis: int, spatial: list[int], width: int, silu: bool = False) -> Any:
        def body(emit: Emit, w: Any, x: relax.Var) -> relax.Expr:
            gamma, beta = w(width, mean=1.0), w(width)
            y = emit(op.nn.group_norm(x, gamma, beta, groups, axis, spatial))
            return op.nn.silu(y) if silu else y

        return body

    def layer(axes: list[int], *shape: int) -> Any:
        return lambda emit, w, x: op.nn.layer_norm(x, w(*shape, mean=1.0), w(*shape), axes=axes)

    def instance(axis: int, spatial: list[int], width: int) -> Any:
        def body(emit: Emit, w: Any, x: relax.Var) -> relax.Expr:
            # The last argument but two is the axis of the channels.
            return op.nn.instance_norm(x, w(width, mean=1.0), w(width), axis, spatial)

        return body

    def rms(emit: Emit, w: Any, x: relax.Var) -> relax.Expr:
        return op.nn.rms_norm(x, w(4096, mean=1.0), axes=[-1])

    def softmax(axis: int, log: bool = False) -> Any:
        operator = op.nn.log_softmax if log else op.nn.softmax
        return lambda emit, w, x: operator(x, axis)

    all_three = ("float16", "bfloat16", "float32")
    return [
        Shape(
            "group_norm_unet",
            [((1, 384, 64, 64), "")],
            group(32, 1, [2, 3], 384),
        ),
        Shape("group_norm_silu", [((2, 320, 32, 32), "")], group(32, 1, [2, 3], 320, silu=True)),
        Shape("group_norm_vae", [((1, 128, 256, 256), "")], group(32, 1, [2, 3], 128, silu=True)),
        Shape("group_norm_last", [((1, 64, 64, 384), "")], group(32, 3, [1, 2], 384, silu=True)),
        Shape("group_norm_odd", [((2, 15, 7, 11), "")], group(5, 1, [2, 3], 15)),
        Shape("group_norm_1d", [((1, 512, 3999), "")], group(512, 1, [2], 512)),
        Shape("instance_norm", [((4, 64, 128, 128), "")], instance(1, [2, 3], 64)),
        Shape("instance_norm_3d", [((1, 32, 32, 64, 64), "")], instance(1, [2, 3, 4], 32)),
        Shape("layer_norm", [((8, 512, 1024), "")], layer([-1], 1024), dtypes=all_three),
        Shape("layer_norm_short", [((64, 3136, 96), "")], layer([-1], 96)),
        Shape("layer_norm_odd", [((3, 77, 771), "")], layer([-1], 771)),
        Shape("layer_norm_first", [((4, 192, 56, 56), "")], layer([1], 192)),
        Shape("layer_norm_whole", [((8, 64, 28, 28), "")], layer([1, 2, 3], 64, 28, 28)),
        Shape("rms_norm", [((1, 2048, 4096), "")], rms),
        Shape("rms_norm_row", [((1, 1, 4096), "")], rms),
        Shape("softmax", [((8, 12, 512, 512), "")], softmax(-1), dtypes=all_three),
        Shape("softmax_long", [((4, 50257), "")], softmax(-1)),
        Shape("softmax_short", [((512, 64, 49), "")], softmax(-1)),
        Shape("log_softmax_first", [((2, 21, 256, 256), "")], softmax(1, log=True)),
        Shape("softmax_middle", [((4, 128, 33, 17), "")], softmax(1)),
    ]


def _reductions() -> list[Shape]:
    def reduced(operator: Any, axes: Any, **attrs: Any) -> Any:
        return lambda emit, w, x: operator(x, axes, **attrs)

    return [
        Shape("mean_pool_first", [((8, 512, 28, 28), "")], reduced(op.mean, [2, 3])),
        Shape("mean_pool_last", [((8, 28, 28, 512), "")], reduced(op.mean, [1, 2])),
        Shape("mean_pool_large", [((1, 16, 112, 112), "")], reduced(op.mean, [2, 3])),
        Shape("mean_pool_large_last", [((1, 112, 112, 16), "")], reduced(op.mean, [1, 2])),
        Shape("sum_all", [((4096, 4096), "")], reduced(op.mean, None)),
        Shape("sum_rows", [((16384, 1024), "")], reduced(op.mean, [1])),
        Shape("sum_columns", [((16384, 1024), "")], reduced(op.mean, [0])),
        Shape("sum_columns_odd", [((9999, 77), "")], reduced(op.mean, [0])),
        Shape("sum_ends", [((64, 128, 999), "")], reduced(op.mean, [0, 2])),
        Shape("sum_middle", [((64, 333, 64, 9), "")], reduced(op.mean, [1, 3])),
        Shape("max_rows", [((16384, 1024), "")], reduced(op.max, [1])),
        Shape("min_all", [((2048, 4096), "")], reduced(op.min, None)),
        Shape("argmax_rows", [((512, 50257), "")], lambda e, w, x: op.argmax(x, 1, False)),
        Shape("argmax_first", [((2, 21, 128, 128), "")], lambda e, w, x: op.argmax(x, 1, False)),
        Shape("variance", [((16, 64, 56, 56), "")], reduced(op.variance, [2, 3])),
        Shape("cumsum_rows", [((256, 4096), "")], lambda e, w, x: op.cumsum(x, 1)),
        Shape("global_max_pool", [((8, 512, 28, 28), "")], reduced(op.max, [2, 3], keepdims=True)),
    ]


def _skinny() -> list[Shape]:
    def dense(depth: int, width: int, transposed: bool = False) -> Any:
        def body(emit: Emit, w: Any, x: relax.Var) -> relax.Expr:
            if not transposed:
                return op.nn.relu(emit(op.add(emit(op.matmul(x, w(depth, width))), w(width))))
            return op.matmul(x, emit(op.permute_dims(w(width, depth))))

        return body

    def excitation(images: int, width: int, squeezed: int, layout: str) -> Any:
        def body(emit: Emit, w: Any, x: relax.Var) -> relax.Expr:
            last = layout == "NHWC"
            kernel = "OHWI" if last else "OIHW"
            first = w(squeezed, 1, 1, width) if last else w(squeezed, width, 1, 1)
            second = w(width, 1, 1, squeezed) if last else w(width, squeezed, 1, 1)
            attrs = {"data_layout": layout, "kernel_layout": kernel}
            y = emit(op.nn.relu(emit(op.nn.conv2d(x, first, **attrs))))
            return op.sigmoid(emit(op.nn.conv2d(y, second, **attrs)))

        return body

    found = []
    for rows in (1, 4, 16):
        size = f"{rows}x4096x4096"
        work = 2.0 * rows * 4096 * 4096
        types = ("float16", "bfloat16", "float32") if rows == 1 else ("float16", "float32")
        inputs = [((rows, 4096), "")]
        found.append(Shape(f"dense_{size}", inputs, dense(4096, 4096), work, types))
    return [
        *found,
        Shape("dense_transposed", [((1, 4096), "")], dense(4096, 4096, True), 2.0 * 4096 * 4096),
        Shape("dense_transposed_8", [((8, 2048), "")], dense(2048, 1000, True), 16.0 * 2048 * 1000),
        Shape("dense_vocabulary", [((1, 768), "")], dense(768, 50257), 2.0 * 768 * 50257),
        Shape("dense_deep", [((1, 25088), "")], dense(25088, 512), 2.0 * 25088 * 512),
        Shape("dense_odd", [((3, 999), "")], dense(999, 77)),
        Shape("excitation_last", [((1, 1, 1, 1152), "")], excitation(1, 1152, 48, "NHWC")),
        Shape("excitation_first", [((1, 1152, 1, 1), "")], excitation(1, 1152, 48, "NCHW")),
        Shape("excitation_batch", [((8, 1, 1, 672), "")], excitation(8, 672, 28, "NHWC")),
    ]


def _movement() -> list[Shape]:
    def permuted(*axes: int) -> Any:
        return lambda emit, w, x: op.permute_dims(x, list(axes))

    def resized(layout: str, method: str, *size: int) -> Any:
        return lambda emit, w, x: op.image.resize2d(
            x, relax.ShapeExpr(size), layout=layout, method=method
        )

    def embedding(emit: Emit, w: Any, x: relax.Var) -> relax.Expr:
        return op.take(w(30522, 768), x, axis=0)

    def scattered(emit: Emit, w: Any, x: relax.Var, at: relax.Var, new: relax.Var) -> relax.Expr:
        return op.scatter_elements(x, at, new, axis=0)

    def gathered(emit: Emit, w: Any, x: relax.Var, at: relax.Var) -> relax.Expr:
        return op.gather_elements(x, at, axis=1)

    def padded(emit: Emit, w: Any, x: relax.Var) -> relax.Expr:
        return op.nn.pad(x, [0, 0, 0, 0, 3, 3, 3, 3])

    def joined(axis: int) -> Any:
        return lambda emit, w, *x: op.concat(list(x), axis)

    def first(result: relax.Expr, emit: Emit) -> relax.Expr:
        return relax.TupleGetItem(emit(result), 0)

    return [
        Shape("transpose_last", [((8, 256, 56, 56), "")], permuted(0, 2, 3, 1)),
        Shape("transpose_first", [((8, 56, 56, 256), "")], permuted(0, 3, 1, 2)),
        Shape("transpose_heads", [((8, 512, 12, 64), "")], permuted(0, 2, 1, 3)),
        Shape("transpose_matrix", [((4096, 4096), "")], permuted(1, 0)),
        Shape("transpose_odd", [((3, 1003, 777), "")], permuted(0, 2, 1)),
        Shape(
            "resize_nearest",
            [((1, 256, 64, 64), "")],
            resized("NCHW", "nearest_neighbor", 128, 128),
        ),
        Shape("resize_linear", [((1, 64, 64, 256), "")], resized("NHWC", "linear", 128, 128)),
        Shape("embedding", [((8, 512), "int64")], embedding),
        Shape("gather", [((512, 4096), ""), ((512, 1024), "int64")], gathered),
        Shape("scatter", [((512, 1024), ""), ((256, 1024), "int64"), ((256, 1024), "")], scattered),
        Shape("pad", [((8, 64, 112, 112), "")], padded),
        Shape("concat_channels", [((8, 56, 56, 64), ""), ((8, 56, 56, 128), "")], joined(3)),
        Shape("concat_first", [((8, 64, 56, 56), ""), ((8, 128, 56, 56), "")], joined(1)),
        Shape("topk", [((8, 8400), "")], lambda e, w, x: first(op.topk(x, 100, 1, "both"), e)),
        Shape("sort", [((64, 4096), "")], lambda e, w, x: op.sort(x, 1)),
        Shape(
            "copy_add",
            [((64, 1024, 1024), "")],
            lambda e, w, x: op.add(x, relax.const(1.5, str(x.ty.dtype))),
        ),
    ]


def shapes() -> list[Shape]:
    """Every workload, family by family."""
    return [*_norms(), *_reductions(), *_skinny(), *convolutions(), *_movement()]


def module_of(shape: Shape, dtype: str) -> tvm.IRModule:
    """A workload in one data type, with seeded weights.

    Parameters
    ----------
    shape : Shape
        The workload.
    dtype : str
        For what has no data type of its own.
    """
    random = np.random.default_rng(len(shape.name))

    def weights(*size: int, mean: float = 0.0) -> relax.Expr:
        terms = size[0] if len(size) == 2 else int(np.prod(size[1:])) or 1
        array = random.standard_normal(size, np.float32) / np.sqrt(max(terms, 1)) + mean
        return relax.const(array.astype(dtype), dtype)

    params = [
        relax.Var(f"x{i}", relax.TensorType(size, kind or dtype))
        for i, (size, kind) in enumerate(shape.inputs)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(shape.body(builder.emit, weights, *params))
        builder.emit_func_output(result)
    return builder.get()


def cases() -> list[CudaCase]:
    """Every workload in its data types."""
    return [
        CudaCase(f"{s.name}-{dtype}", "tvm", "tvm", module_of(s, dtype), rtol=RTOL[dtype])
        for s in shapes()
        for dtype in s.dtypes
    ]
