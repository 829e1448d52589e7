"""What a search hands to a backend's ``tune`` is what its code generator asks about afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tvm

from benchmarks.gpu.cases import case_of
from benchmarks.gpu.cases.compiling import cuda_target, partition_case
from collage.backends.compile import external_functions
from collage.backends.contract import BackendTarget, BuildContext, Tunable
from collage.backends.contract.registry import get_backend
from collage.backends.cublas import backend as cublas
from collage.backends.cudnn import backend as cudnn
from collage.backends.cudnn import tuning as plans
from collage.backends.cutlass import backend as cutlass
from collage.backends.cutlass import codegen
from collage.cost.processes.described import TargetMessage, WorkloadMessage
from collage.cost.processes.messages import Tune, Tuned
from collage.cost.worker.build import tune
from collage.cost.workload.workload import Workload
from tests.backends_tests.cutlass.tuning.fake_profiler import favour_last

pytestmark = pytest.mark.cuda

CASES = {
    "cublas": ["matmul-float16-2x17x64x96", "matmul_bias_relu-float16-2x17x64x96"],
    "cudnn": ["conv2d-float16-2x32x9x7-64x3x3", "conv2d_bias_relu-float16-strided"],
    "cutlass": ["matmul-float16-2x64x128-128x192", "matmul_bias-float16-2x64x128-128x192"],
}


def modules(backend: str) -> list[tvm.IRModule]:
    device = cuda_target()
    return [partition_case(case_of(backend, name), device).module for name in CASES[backend]]


def request(backend: str, context: BuildContext) -> Tune:
    target = BackendTarget.of(backend, cuda_target())
    workloads = tuple(WorkloadMessage.of(Workload.from_module(mod)) for mod in modules(backend))
    return Tune(workloads, TargetMessage.of(target), context, 0)


def functions(backend: str) -> list[Any]:
    """Of all modules, as the code generator gets them one module at a time."""
    made = get_backend(backend)
    assert isinstance(made, Tunable)
    return [f for mod in modules(backend) for f in external_functions(mod, made)]


def test_cutlass_measures_everything_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = BuildContext(tmp_path, tmp_path / "work")
    profiler = favour_last()
    monkeypatch.setattr(cutlass, "device_name", lambda *_: "a GPU")
    monkeypatch.setattr(codegen, "gpu_profiler", lambda *_: profiler)
    told: list[Tuned] = []
    assert tune(request("cutlass", context), told.append) == Tuned(workloads=(), is_over=True)
    assert [tuned.workloads for tuned in told] == [(0,), (1,)]
    assert len({job.spec for job in profiler.asked}) == 2
    asked = len(profiler.asked)
    target = BackendTarget.of("cutlass", cuda_target())
    get_backend("cutlass").tune(functions("cutlass"), target, context)  # type: ignore[attr-defined]
    assert len(profiler.asked) == asked, "all is remembered"


def test_cublas_chooses_for_the_products_that_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(cublas, "device_name", lambda *_: "a GPU")
    monkeypatch.setattr(
        cublas, "choose_algorithms", lambda partitions, *_: asked.extend(partitions)
    )
    tune(request("cublas", BuildContext(tmp_path, tmp_path / "work")), print)
    options = get_backend("cublas").parse_options({})
    built = [cublas.read_partition(f, options).problem for f in functions("cublas")]
    assert [partition.problem for partition in asked] == built and len(set(built)) == 2


def test_cudnn_plans_the_graphs_that_are_built_in_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []

    def planner(_: Path, output: Path, *__: object) -> bool:
        runs.append(len(runs))
        for index in range(2):
            (output / f"{index}.plan").write_bytes(b"plan")
            (output / f"{index}.txt").write_text("0 engine")
        return True

    monkeypatch.setattr("collage.backends.devices.cuda.device_name", lambda *_: "a GPU")
    monkeypatch.setattr(plans, "link_planner", lambda *_: Path("planner"))
    monkeypatch.setattr(plans, "run_planner", planner)
    context = BuildContext(tmp_path, tmp_path / "work")
    tune(request("cudnn", context), print)
    target = BackendTarget.of("cudnn", cuda_target())
    cudnn.backend().tune(functions("cudnn"), target, context)
    assert len(runs) == 1, "all is remembered"
