"""Small networks of three families, all of which libraries take as one region."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.compile import compile_module, external_functions
from collage.backends.contract import BuildContext
from collage.backends.link import stage_libraries
from collage.cost.reference import evaluate, largest_error
from collage.normalize import normalize
from collage.passes import lower
from collage.search.dataflow import DataflowGraph
from collage.search.strategies.without_costs import single_backend
from collage.targets import resolve_targets
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.whole_regions.regions import Regions


def _residual(emit: Emit, x: relax.Expr, into: int, out: int, stride: int) -> relax.Expr:
    """Two convolutions beside a shortcut."""

    def convolved(y: relax.Expr, channels: int, size: int, step: int) -> relax.Expr:
        given = int(y.ty.shape[1])
        weights = constant(channels, given, size, size, scale=(given * size * size) ** -0.5)
        y = emit(op.nn.conv2d(y, weights, strides=step, padding=size // 2))
        return emit(op.add(y, constant(1, channels, 1, 1, scale=0.1)))

    y = emit(op.nn.relu(convolved(x, out, 3, stride)))
    shortcut = x if into == out and stride == 1 else convolved(x, out, 1, stride)
    return emit(op.nn.relu(emit(op.add(convolved(y, out, 3, 1), shortcut))))


def resnet(emit: Emit, x: relax.Expr) -> relax.Expr:
    x = emit(op.nn.max_pool2d(_residual(emit, x, 3, 16, 2), (3, 3), (2, 2), (1, 1)))
    for into, out, stride in ((16, 16, 1), (16, 32, 2), (32, 32, 1)):
        x = _residual(emit, x, into, out, stride)
    pooled = emit(op.mean(x, [2, 3]))
    return op.matmul(pooled, constant(32, 10, scale=0.2))


def unet(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Down and up again with a skip: group norms, SiLU, resizing, concatenation."""

    def block(y: relax.Expr, channels: int, stride: int = 1) -> relax.Expr:
        given = int(y.ty.shape[1])
        weights = constant(channels, given, 3, 3, scale=(given * 9) ** -0.5)
        y = emit(op.nn.conv2d(y, weights, padding=1, strides=stride))
        y = emit(op.nn.group_norm(y, constant(channels), constant(channels), 8, 1, [2, 3]))
        return emit(op.nn.silu(y))

    top = block(x, 16)
    low = block(block(top, 32, 2), 32)
    up = emit(op.image.resize2d(low, (24, 24), method="nearest_neighbor",
                                coordinate_transformation_mode="asymmetric",
                                rounding_method="floor"))  # fmt: skip
    return block(emit(op.concat([up, top], 1)), 8)


def transformer(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Attention over four heads and a feed-forward pair, each behind a norm."""
    width, heads = 64, 4

    def linear(y: relax.Expr, into: int, out: int) -> relax.Expr:
        y = emit(op.matmul(y, constant(into, out, scale=into**-0.5)))
        return emit(op.add(y, constant(out, scale=0.1)))

    def normed(y: relax.Expr) -> relax.Expr:
        return emit(op.nn.layer_norm(y, constant(width), constant(width), [-1]))

    def by_head(y: relax.Expr) -> relax.Expr:
        shape = (1, -1, heads, width // heads)
        return emit(op.permute_dims(emit(op.reshape(y, shape)), [0, 2, 1, 3]))

    given = normed(x)
    query, key, value = (by_head(linear(given, width, width)) for _ in range(3))
    scores = emit(op.matmul(query, emit(op.permute_dims(key, [0, 1, 3, 2]))))
    scaled = emit(op.multiply(scores, relax.const(np.float32((width // heads) ** -0.5))))
    mixed = emit(op.matmul(emit(op.nn.softmax(scaled)), value))
    mixed = emit(op.reshape(emit(op.permute_dims(mixed, [0, 2, 1, 3])), (1, 33, width)))
    x = emit(op.add(x, linear(mixed, width, width)))
    return op.add(x, linear(emit(op.nn.gelu(linear(normed(x), width, 128))), 128, width))


NETWORKS: dict[str, tuple[tuple[int, ...], Any]] = {
    "resnet": ((1, 3, 64, 64), resnet),
    "unet": ((1, 3, 24, 24), unet),
    "transformer": ((1, 33, 64), transformer),
}


def error_as_one_region(name: str, kind: str | dict[str, Any], context: BuildContext) -> float:
    """How far a network is off as one region of a target, on fresh inputs."""
    shape, body = NETWORKS[name]
    mod = normalize(graph([shape], body))
    native, wanted = resolve_targets(["llvm", kind])
    dataflow = DataflowGraph.from_function(mod["main"], mod)
    cut = lower(mod, dataflow, single_backend(dataflow, wanted, native))
    assert len(external_functions(cut, Regions(wanted.backend).backend())) == 1
    library = compile_module(cut, [native, wanted], context.work_dir / "model.so", context)
    stage_libraries(library, copy=False)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library.path)), tvm.cpu())
    x = np.random.default_rng().standard_normal(shape).astype(np.float32)
    (expected,) = evaluate(mod, [x])
    return largest_error(machine["main"](tvm.runtime.tensor(x)).numpy(), expected)
