"""What a process that times holds does not grow with what it has timed."""

from __future__ import annotations

import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BackendTarget, BuildContext, ExternalBackend
from collage.backends.contract.registry import get_backend
from collage.backends.toolchain.children.freed_memory import return_freed_memory
from collage.backends.toolchain.children.mapped_pages import forget_pages
from collage.cost.config import MeasureConfig
from collage.cost.contest import ExchangeRounds
from collage.cost.measure.builder import BuildJob
from collage.cost.measure.local_builder import LocalBuilder
from collage.cost.measure.local_runner import LocalRunner
from collage.cost.measure.runner import RunJob
from collage.cost.reference import Sample
from collage.cost.worker.build import _materialized
from collage.cost.worker.memory import give_back, load_for_a_while
from collage.cost.workload import Workload
from collage.testing.backend_cases import fuse
from collage.testing.graphs import graph
from tests.cost_tests.support import native_partition, random_weight, tensor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux tells what is mapped")

WIDTH = 3072
WEIGHTS_BYTES = 4 * WIDTH * WIDTH
OTHERS = 9
"""After the first one, with which come libraries that stay."""

CONFIG = MeasureConfig(repeat=2, min_repeat=2, min_repeat_sec=0.002, warmup_sec=0.002)


def _product(name: str) -> tuple[Workload, BackendTarget]:
    """A product with 36 MB of weights, and who computes it."""
    backend, native = get_backend(name), tvm.target.Target("llvm")
    if not backend.probe().usable:
        pytest.skip(f"{name} is not installed")
    target = BackendTarget(name, native, backend.parse_options({}))
    weights = random_weight(np.random.default_rng(0), WIDTH, WIDTH)
    if isinstance(backend, ExternalBackend):
        mod = fuse(backend, target, graph([(8, WIDTH)], lambda _, x: op.matmul(x, weights)))
    else:
        mod = native_partition([tensor("x", 8, WIDTH)], lambda x: op.matmul(x, weights))
    return Workload.from_module(mod), target


@pytest.fixture(scope="module", params=["tvm", "onednn", "openblas", "openvino", "onnxruntime"])
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cache_dir: Path
) -> Path:
    """A candidate's folder."""
    workload, target = _product(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    context = BuildContext(cache_dir, folder / "work", num_threads=1)
    folder /= "built"
    with LocalBuilder(context, MeasureConfig(), parallel=1) as builder:
        (result,) = builder.build([BuildJob(workload, target, folder)])
    assert result.library is not None, result.reason
    return folder


def _copies(built: Path, number: int, folder: Path) -> list[RunJob]:
    """Files of their own, as of different candidates."""
    folders = [folder / f"copy{index}" for index in range(number)]
    return [RunJob.in_folder(shutil.copytree(built, one, symlinks=True)) for one in folders]


def _held_bytes(runner: LocalRunner) -> tuple[int, int]:
    """By the process that times, and which one that is."""
    assert runner._worker is not None
    return runner._worker.resident_bytes, runner._worker.pid


def test_what_was_timed_is_unloaded(built: Path, tmp_path: Path) -> None:
    """Each candidate left its file and its packed weights in the process, until that had 2 GiB."""
    first, *others = _copies(built, 1 + OTHERS, tmp_path)
    with LocalRunner(CONFIG) as runner:
        assert runner.run(first).cost.is_valid
        before, process = _held_bytes(runner)
        for job in others:
            assert runner.run(job).cost.is_valid
        after, same = _held_bytes(runner)
    assert same == process
    assert after - before < WEIGHTS_BYTES


def test_nothing_of_a_contest_is_left(built: Path, tmp_path: Path) -> None:
    """All stay loaded while it lasts, and stayed while others were built."""
    jobs = _copies(built, 3, tmp_path)
    with LocalRunner(CONFIG) as runner:
        together = runner.play(jobs, ExchangeRounds(()), "seed", nullcontext)
        assert together.failures == (None,) * len(jobs)
        assert runner._worker is None


def test_constants_are_read_again_where_they_are_wanted(built: Path) -> None:
    library, sample = built / "model.so", Sample.load(built)
    machine = relax.VirtualMachine(load_for_a_while(library), tvm.cpu())
    machine.set_input("main", *map(tvm.runtime.tensor, sample.inputs))
    for _ in range(3):
        machine.invoke_stateful("main")
        expected = machine.get_outputs("main").numpy()
        assert np.allclose(expected, sample.expected[0], rtol=1e-3, atol=1e-3)
        forget_pages(library.parent)
        assert _in_memory(library) < WEIGHTS_BYTES // 4
    del machine
    give_back()
    assert _in_memory(library) == 0


def test_a_builder_holds_no_weights_while_nobody_reads_them(tmp_path: Path) -> None:
    """Regions of whole networks are candidates, and each builder held its weights several times."""
    weights = random_weight(np.random.default_rng(0), WIDTH, WIDTH)
    mod = native_partition([tensor("x", 8, WIDTH)], lambda x: op.matmul(x, weights))
    workload = Workload.from_module(mod)
    before = _own_bytes()
    made = _materialized(workload, 3, tmp_path)
    assert _own_bytes() - before < WEIGHTS_BYTES // 4
    assert not list(tmp_path.iterdir())
    assert tvm_ffi.structural_equal(made, workload.materialize(3))


def _own_bytes() -> int:
    return_freed_memory()
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    (anonymous,) = (line for line in lines if line.startswith("Anonymous:"))
    return int(anonymous.split()[1]) << 10


def _in_memory(library: Path) -> int:
    """Bytes of a file that this process holds."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if not line[0].isupper():
            ours = line.endswith(str(library.resolve()))
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1]) << 10
    return total
