"""What is stated of a model's memory, held against TVM's plan and a process that runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from benchmarks.networks.tiny import tiny_mobilenet
from collage.backends.compile import build_executable
from collage.backends.devices import CPU
from collage.backends.relax.modules.memory_plan import planned_bytes
from collage.bundle import read_report
from collage.bundle.manifest import read_manifest
from collage.end_to_end import baselines, memory_of
from collage.passes import lower
from collage.pipeline import import_model, open_session
from collage.testing import graph
from tests.collage_tests.conftest import TARGETS
from tests.collage_tests.pipeline.flat_costs import FlatCosts

FACTOR = 1.4
"""How far the statement may be off, either way."""

_CHILD = """
import sys
import numpy, collage
bundle = collage.load(sys.argv[1])
feed = {i.name: numpy.ones(i.shape, i.dtype) for i in bundle.manifest.inputs}
for _ in range(2):
    bundle(**feed)
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        print(line.split()[1])
"""


def _random(*shape: int) -> relax.Expr:
    # Each other than the others, or they would be stored once.
    values = np.random.default_rng().standard_normal(shape, "float32")
    return relax.const(values / np.float32(np.sqrt(np.prod(shape[1:]))))


def _dense(width: int) -> tvm.IRModule:
    """Weights are nearly all that it takes."""

    def body(emit, x):
        for _ in range(3):
            x = emit(op.nn.relu(emit(op.matmul(x, _random(width, width)))))
        return op.exp(x)

    return graph([(8, width)], body)


def _convolutions(size: int) -> tvm.IRModule:
    """Intermediate results are."""

    def body(emit, x):
        for channels in (3, 48, 48):
            x = emit(op.nn.conv2d(x, _random(48, channels, 3, 3), padding=1))
            x = emit(op.nn.relu(x))
        return op.mean(x, axis=[2, 3])

    return graph([(1, 3, size, size)], body)


def _peak_and_stated(mod: tvm.IRModule, backend: str, folder: Path) -> tuple[int, int]:
    targets = ["llvm"] if backend == "tvm" else ["llvm", backend]
    result = collage.optimize(
        *(mod, targets), strategy=f"single:{backend}", cost_model=FlatCosts(targets[-1])
    )
    result.export(folder)
    memory = read_manifest(folder).memory
    (row,) = read_report(folder).end_to_end
    assert memory is not None and row.memory == memory
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, str(folder)], capture_output=True, text=True, check=True
    )
    return 1024 * int(child.stdout), memory.total_bytes


@pytest.mark.parametrize(
    ("network", "backend"),
    [
        ("dense", "onednn"),
        pytest.param("dense", "tvm", marks=pytest.mark.slow),
        pytest.param("dense", "openblas", marks=pytest.mark.slow),
        pytest.param("dense", "openvino", marks=pytest.mark.slow),
        pytest.param("dense", "onnxruntime", marks=pytest.mark.slow),
        pytest.param("convolutions", "tvm", marks=pytest.mark.slow),
        pytest.param("convolutions", "onednn", marks=pytest.mark.slow),
    ],
)
def test_a_process_takes_what_is_stated(network: str, backend: str, tmp_path: Path) -> None:
    if backend == "openvino":
        pytest.importorskip("openvino")
    large, small = (
        (_dense(1664), _dense(16)) if network == "dense" else (_convolutions(288), _convolutions(8))
    )
    peak, stated = _peak_and_stated(large, backend, tmp_path / "large")
    # What every process takes, with its libraries.
    others, nothing = _peak_and_stated(small, backend, tmp_path / "small")
    assert stated > 20 << 20 and nothing < 1 << 20
    assert 1 / FACTOR < (peak - others) / (stated - nothing) < FACTOR, (peak - others, stated)


@pytest.mark.parametrize("name", ["single:tvm", "single:onednn", "single:openblas", "greedy"])
def test_the_plan_is_that_of_the_compiled_function(name: str) -> None:
    session = open_session(TARGETS)
    imported = import_model(tiny_mobilenet(), CPU)
    (contender,) = (c for c in baselines(imported.graph, session.targets) if c.name == name)
    mod = lower(imported.mod, imported.graph, contender.partitioning)
    seen = _Planned()
    with tvm.transform.PassContext(instruments=[seen]):
        build_executable(mod, tuple(session.targets), session.context)
    planned = planned_bytes(mod["main"])
    stated = memory_of(mod, tuple(session.targets))
    # A reshape that is a partition of its own needs no memory after all.
    assert seen.storage["main"] <= planned.inner <= 1.05 * seen.storage["main"]
    assert stated.activations_bytes >= planned.inner + planned.outputs


def test_what_gives_tuples_of_tuples_is_planned() -> None:
    pair = relax.TupleType([relax.TensorType((8,), "float32"), relax.TensorType((4,), "int8")])
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8,), "float32"))
    nested = relax.TupleType([pair, relax.TensorType((2,), "float32")])
    with builder.function("main", [x]):
        found = builder.emit(relax.Call(relax.ExternFunc("found"), [x], ty_args=[nested]))
        first = builder.emit(relax.TupleGetItem(found, 0))
        builder.emit_func_output(builder.emit(op.exp(builder.emit(relax.TupleGetItem(first, 0)))))
    # Eight, four and two elements; the output is not among them.
    planned = planned_bytes(builder.get()["main"])
    assert (planned.inner, planned.outputs) == (32 + 4 + 8, 32)


@tvm.instrument.pass_instrument
class _Planned:
    """What TVM plans while it compiles."""

    def __init__(self) -> None:
        self.storage: dict[str, int] = {}

    def run_after_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        if info.name != "StaticPlanBlockMemory":
            return
        for var, function in mod.functions.items():
            if isinstance(function, relax.Function):
                values = [b.value for block in function.body.blocks for b in block.bindings]
                self.storage[str(var.name_hint)] = sum(
                    int(value.args[0].values[0])
                    for value in values
                    if isinstance(value, relax.Call)
                    and getattr(value.op, "name", "") == "relax.memory.alloc_storage"
                )
