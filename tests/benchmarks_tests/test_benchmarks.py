"""The benchmark's harness: statistics, engine processes, tables."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import ModelProto, TensorProto

from benchmarks import table
from benchmarks.engines import ENGINES, REFERENCE, Job
from benchmarks.networks.models import random_inputs, tiny_bert, tiny_mobilenet
from benchmarks.networks.tiny import GraphWriter
from benchmarks.timing.interleave import EngineResult, Plan, measure
from benchmarks.timing.processes import EngineError, EngineProcess, Turn
from benchmarks.timing.statistics import (
    Spread,
    max_relative_difference,
    ratio_spread,
    rms_relative_difference,
)

_ROOT = Path(__file__).resolve().parents[2]
_SHORT = Plan(rounds=3, turn=Turn(settle_sec=0.01, turn_sec=0.02), load_limit_sec=120.0)
_OURS = ("collage", "single:onednn", "single:openblas", "greedy", "single:tvm")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    onnx.save(tiny_mobilenet(), tmp_path / "tiny.onnx")
    return Job(tmp_path / "tiny.onnx", tmp_path / "work", threads=1)


@pytest.fixture
def process(job: Job) -> Iterator[EngineProcess]:
    with EngineProcess(REFERENCE, job) as started:
        started.load(seed=0, limit_sec=60.0)
        yield started


def test_spread_is_median_and_quartiles() -> None:
    spread = Spread.of([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (spread.lower_quartile, spread.median, spread.upper_quartile) == (2.0, 3.0, 4.0)
    assert spread.n == 5


def test_ratio_is_blind_to_drift() -> None:
    speed = np.array([1.0, 1.0, 3.0, 0.5, 2.0, 7.0])  # the machine's, round by round
    ratio = ratio_spread(list(1.2 * speed), list(speed))
    assert ratio.median == pytest.approx(1.2)
    assert ratio.upper_quartile - ratio.lower_quartile == pytest.approx(0.0)
    with pytest.raises(ValueError, match="longer"):
        ratio_spread([1.0], [1.0, 2.0])


def test_difference_is_relative_to_the_largest_value() -> None:
    reference = [np.array([1.0, -8.0], np.float32), np.array([0.5], np.float32)]
    near = [np.array([1.0, -8.4], np.float32), np.array([0.505], np.float32)]
    assert max_relative_difference(near, reference) == pytest.approx(0.05)
    with pytest.raises(ValueError, match="finite"):
        max_relative_difference([np.array([1.0, np.nan]), reference[1]], reference)
    with pytest.raises(ValueError, match="shapes"):
        max_relative_difference([reference[1]], reference)


def test_what_is_no_number_is_no_small_error() -> None:
    """It took no part in the worst of all outputs, so a network of nothing else was exact."""
    reference = [np.array([3.0, -np.inf, 4.0]), np.array([2.0])]
    near = [np.array([3.0, -np.inf, 4.0]), np.array([2.5])]
    assert rms_relative_difference(near, reference) == pytest.approx(0.25)
    for off in ([np.nan, -np.inf, 4.0], [3.0, np.inf, 4.0], [3.0, 0.0, 4.0]):
        assert rms_relative_difference([np.array(off), near[1]], reference) == np.inf
    assert rms_relative_difference(near, [np.array([np.nan] * 3), near[1]]) == np.inf


def test_paused_process_stands_still(process: EngineProcess) -> None:
    worker = psutil.Process(process.pid)
    process.suspend()
    before = worker.cpu_times()
    with pytest.raises(EngineError, match="no answer"):
        process.time(_SHORT.turn, limit_sec=0.5)
    assert worker.status() == psutil.STATUS_STOPPED
    assert worker.cpu_times() == before


def test_turn_times_calls(process: EngineProcess) -> None:
    process.suspend()
    process.resume()
    samples = process.time(Turn(settle_sec=0.0, turn_sec=0.0, min_calls=7))
    assert len(samples) == 7
    assert all(0 < s < 5 for s in samples)


def test_killed_worker_is_an_error(process: EngineProcess) -> None:
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="ended"):
        process.outputs()


def test_stopped_worker_dies_with_its_parent(job: Job) -> None:
    script = (
        "import os, sys; from pathlib import Path; from benchmarks.engines import Job;"
        "from benchmarks.timing.processes import EngineProcess;"
        "p = EngineProcess('onnxruntime', Job(Path(sys.argv[1]), Path(sys.argv[2]), 1));"
        "p.load(seed=0, limit_sec=60); p.suspend(); print(p.pid, flush=True); os._exit(0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(job.model), str(job.work_dir)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    worker = int(done.stdout)
    end = time.monotonic() + 10
    while _alive(worker) and time.monotonic() < end:
        time.sleep(0.05)
    assert not _alive(worker)


def _alive(pid: int) -> bool:
    """Whether the process runs or is stopped; one that nobody has waited for yet is dead."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_peers_agree(job: Job) -> None:
    reference, openvino = measure(job, [REFERENCE, "openvino"], _SHORT)
    assert reference.failure == ""
    assert len(reference.round_sec) == _SHORT.rounds
    _check_peer(openvino, "openvino")


@pytest.mark.torch
@pytest.mark.slow
def test_torch_compile_agrees(job: Job) -> None:
    _, compiled = measure(job, [REFERENCE, "torch.compile"], _SHORT)
    _check_peer(compiled, "torch")


def _check_peer(peer: EngineResult, module: str) -> None:
    """Its outputs agree; where it is not installed, the row says so."""
    if find_spec(module) is None:
        assert peer.missing
        assert f"pip install {module}" in peer.failure
    else:
        assert peer.failure == ""
        assert peer.max_rel_diff is not None
        assert peer.max_rel_diff < 1e-4


def _two_layers() -> ModelProto:
    """A convolution and a dense layer: little to measure, yet every backend has its part."""
    g = GraphWriter(seed=2)
    x = g.apply("Conv", "image", g.normal((8, 3, 3, 3), 0.3), g.normal((8,), 0.1), pads=[1] * 4)
    x = g.apply("Flatten", g.apply("MaxPool", g.apply("Relu", x), kernel_shape=[4, 4]), axis=1)
    x = g.apply("Gemm", x, g.normal((1352, 10), 0.05), g.normal((10,), 0.1))
    return g.model("two_layers", {"image": (TensorProto.FLOAT, (1, 3, 16, 16))}, x, (1, 10))


@pytest.mark.parametrize(
    ("build", "ours"),
    [
        # One of each kind: a search, a backend alone, a strategy without measuring.
        (_two_layers, ("collage", "single:onednn", "greedy")),
        pytest.param(tiny_mobilenet, _OURS, marks=pytest.mark.slow),
        pytest.param(tiny_bert, _OURS, marks=pytest.mark.slow),
    ],
)
def test_our_engines_agree(tmp_path: Path, build: object, ours: tuple[str, ...]) -> None:
    onnx.save(build(), tmp_path / "tiny.onnx")  # type: ignore[operator]
    job = Job(tmp_path / "tiny.onnx", tmp_path / "work", threads=1)
    results = measure(job, [REFERENCE, *ours], _SHORT)
    assert [f"{r.engine}: {r.failure}" for r in results if r.failure] == []
    for result in results:
        assert result.max_rel_diff is not None
        assert result.max_rel_diff < 1e-3
        assert len(result.round_sec) == _SHORT.rounds
    assert results[1].figures["prepare_sec"] > 0


def test_failure_of_one_leaves_the_others(job: Job) -> None:
    bundle = ENGINES["collage"].bundle(job)  # type: ignore[attr-defined]
    bundle.mkdir(parents=True)  # a bundle that is none, and so cannot be loaded
    broken, reference = measure(job, ["collage", REFERENCE], _SHORT)
    assert "bundle" in broken.failure
    assert broken.round_sec == []
    assert reference.failure == ""
    assert len(reference.round_sec) == _SHORT.rounds


def test_unreadable_model_fails_every_engine(job: Job) -> None:
    job.model.write_bytes(b"no model")
    (only,) = measure(job, [REFERENCE], _SHORT)
    assert only.failure
    assert not only.missing


def test_torch_graph_computes_the_model() -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    import onnxruntime

    from benchmarks.engines.torch_graph import OnnxModule

    for model in (tiny_mobilenet(), tiny_bert()):
        inputs = random_inputs(model, 3)
        session = onnxruntime.InferenceSession(model.SerializeToString())
        expected = session.run(None, inputs)
        actual = OnnxModule(model)(*(torch.from_numpy(a) for a in inputs.values()))
        assert max_relative_difference([a.numpy() for a in actual], expected) < 1e-5


def test_table_shows_ratios_and_reasons(tmp_path: Path) -> None:
    results = [
        EngineResult(REFERENCE, [0.010, 0.020], {"load_sec": 0.5}, {"onnxruntime": "1"}, 0.0),
        EngineResult("openvino", [0.009, 0.018], {"load_sec": 1.0}, {"openvino": "2"}, 1e-6),
        EngineResult("torch.compile", failure="not installed: pip install torch", missing=True),
        EngineResult("collage", failure="ValueError: a | b"),
    ]
    rows = table.rows(results)
    assert [row[0] for row in rows] == ["openvino", REFERENCE]
    assert rows[0][1:4] == ("0.900", "0.900 to 0.900", "13.50")
    assert len(table.failures(results)) == 2
    machine = {"cpu": "c", "cores": "2", "memory_gib": "4", "system": "s", "python": "3"}
    record = table.Record(
        "now", "abc", {**machine, "load_average_before": "0"}, {"threads": 2, "rounds": 2}
    )
    record.results["resnet50"] = results
    table.write(record, tmp_path, "cpu")
    page = (tmp_path / "cpu.md").read_text()
    assert "| openvino | 0.900 |" in page
    assert "torch.compile was not run: not installed" in page
    assert "collage failed: ValueError" in page
    assert '"max_rel_diff": 1e-06' in (tmp_path / "cpu.json").read_text()
