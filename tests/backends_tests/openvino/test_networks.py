"""Whole networks as OpenVINO's regions, and their bundles where OpenVINO is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from benchmarks.networks.tiny import tiny_bert, tiny_mobilenet
from collage.backends.compile import compile_module, external_functions
from collage.backends.contract import BuildContext
from collage.backends.contract.errors import CodegenError, TargetError
from collage.backends.link import stage_libraries
from collage.backends.openvino.codegen import compile_functions
from collage.backends.openvino.library import find_installation
from collage.backends.openvino.problem import write_region
from collage.cost.reference import evaluate, largest_error
from collage.normalize import normalize
from collage.passes import lower
from collage.search.dataflow import DataflowGraph
from collage.search.strategies.without_costs import single_backend
from collage.targets import resolve_targets
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.openvino.support import backend, installed, partitioned, target

pytestmark = installed


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


@pytest.mark.parametrize("precision, tolerance", [("float32", 2e-5), ("bfloat16", 1e-1)])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_one_region_and_right(
    name: str, precision: str, tolerance: float, context: BuildContext
) -> None:
    if precision == "bfloat16" and "BF16" not in _capabilities():
        pytest.skip("OpenVINO does not compute in bfloat16 on this processor")
    shape, body = NETWORKS[name]
    mod = normalize(graph([shape], body))
    native, wanted = resolve_targets(["llvm", {"kind": "openvino", "precision": precision}])
    dataflow = DataflowGraph.from_function(mod["main"], mod)
    cut = lower(mod, dataflow, single_backend(dataflow, wanted, native))
    assert len(external_functions(cut, backend())) == 1
    library = compile_module(cut, [native, wanted], context.work_dir / "model.so", context)
    stage_libraries(library, copy=False)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library.path)), tvm.cpu())
    x = np.random.default_rng().standard_normal(shape).astype(np.float32)
    (expected,) = evaluate(mod, [x])
    off = largest_error(machine["main"](tvm.runtime.tensor(x)).numpy(), expected)
    assert off < tolerance
    if precision == "bfloat16":
        assert off > 2e-5, "it was computed in float32"


def _capabilities() -> frozenset[str]:
    from collage.backends.openvino.library import cpu_capabilities

    return cpu_capabilities()


_ELSEWHERE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "openvino":
            raise ImportError(name)
sys.meta_path.insert(0, Hidden())
import numpy as np, tvm
from tvm import relax
folder, given, made = sys.argv[1:]
machine = relax.VirtualMachine(tvm.runtime.load_module(folder + "/model.so"), tvm.cpu())
inputs = [tvm.runtime.tensor(array) for array in np.load(given).values()]
np.save(made, machine["main"](*inputs).numpy())
mapped = {line.split()[-1] for line in open("/proc/self/maps") if "openvino" in line}
assert mapped and all(path.startswith(folder) for path in mapped), mapped
"""
"""Runs a bundle on TVM's runtime alone."""


@pytest.mark.parametrize("name", ["bert", pytest.param("mobilenet", marks=pytest.mark.slow)])
def test_a_bundle_runs_elsewhere(name: str, tmp_path: Path) -> None:
    made = tiny_bert() if name == "bert" else tiny_mobilenet()
    result = collage.optimize(made, ["llvm", "openvino"], strategy="single:openvino")
    assert "openvino" in {part.backend for part in result.report.partitions}
    folder = result.export(tmp_path / "here")
    folder = folder.rename(tmp_path / "there")
    inputs = collage.bundle.load(folder).manifest.inputs
    rng = np.random.default_rng()
    arrays = [
        rng.integers(0, 2, i.shape).astype(i.dtype)
        if i.dtype.startswith("int")
        else rng.standard_normal(i.shape).astype(i.dtype)
        for i in inputs
    ]
    np.savez(tmp_path / "inputs.npz", *arrays)
    command = [sys.executable, "-c", _ELSEWHERE, str(folder)]
    files = [str(tmp_path / "inputs.npz"), str(tmp_path / "output.npy")]
    done = subprocess.run([*command, *files], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    import onnxruntime

    session = onnxruntime.InferenceSession(onnx.ModelProto.SerializeToString(made))
    (expected,) = session.run(None, dict(zip([i.name for i in inputs], arrays, strict=True)))
    assert largest_error(np.load(tmp_path / "output.npy"), expected) < 1e-4


def test_equal_regions_are_equal_text(tmp_path: Path) -> None:
    weights = constant(8, 8)
    mod = graph([(3, 8)], lambda emit, x: op.nn.relu(emit(op.matmul(x, weights))))
    (function,) = external_functions(partitioned(mod, target()), backend())[:1]
    first, second = (write_region(function).write(tmp_path) for _ in range(2))
    assert first == second


def test_importing_it_reports_to_nobody() -> None:
    code = (
        "import sys\n"
        "from collage.backends.openvino.library import python_api\n"
        "assert python_api().Core().available_devices\n"
        "assert not [name for name in sys.modules if 'telemetry' in name]\n"
        "assert 'openvino.tools.ovc' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_openvino_refuses_is_an_error_with_its_words(context: BuildContext) -> None:
    # A region that the patterns would not have let through.
    x = relax.Var("x", relax.TensorType((3, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("refused", [x], attrs={"global_symbol": "refused"}):
        builder.emit_func_output(builder.emit(op.sort(x)))
    with pytest.raises(CodegenError, match=r"relax\.sort is not supported") as caught:
        compile_functions(
            [builder.get()["refused"]], target().options, find_installation(), context
        )
    assert caught.value.value == "refused"


def test_a_precision_is_one_of_three() -> None:
    with pytest.raises(TargetError, match="bfloat16"):
        resolve_targets(["llvm", {"kind": "openvino", "precision": "int4"}])
