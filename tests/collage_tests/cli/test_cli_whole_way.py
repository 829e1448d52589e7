"""The command line from a model file to numbers, with nothing replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

import collage
from tests.interrupts import interruptible

TARGETS = ("-t", "llvm", "-t", "openblas")


@pytest.fixture(scope="module")
def weights() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return rng.standard_normal((16, 8), np.float32), rng.standard_normal(8, np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, weights: tuple[np.ndarray, np.ndarray]) -> Path:
    """relu(x @ w + b), with an open first dimension."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])],
        [numpy_helper.from_array(w, name) for w, name in zip(weights, "wb", strict=True)],
    )
    path = tmp_path_factory.mktemp("model") / "layer.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


def _collage(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "collage", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=500)


@pytest.fixture(scope="module")
def optimized(model: Path) -> tuple[Path, Path, dict[str, object]]:
    """The bundle, the log, and what --json printed."""
    bundle, log = model.parent / "bundle", model.parent / "log.jsonl"
    done = _collage(
        "optimize", model, *TARGETS, "--shape", "x=4,16", "--log", log, "-o", bundle, "--json"
    )
    assert done.returncode == 0, done.stderr
    return bundle, log, json.loads(done.stdout)


def test_optimize_reports_every_contender_and_measures(
    optimized: tuple[Path, Path, dict[str, object]],
) -> None:
    bundle, log, value = optimized
    assert value["bundle"] == str(bundle)
    rows = value["end_to_end"]
    assert isinstance(rows, list)
    assert {"single:tvm", "single:openblas"} <= {row["name"] for row in rows}
    (chosen,) = [row for row in rows if row["chosen"]]
    assert chosen["outcome"] == "chosen"
    assert all(row["ratio"] >= 0.98 for row in rows if row["ratio"] is not None)
    assert isinstance(value["search"], dict)
    assert value["search"]["measured"] > 0
    assert log.stat().st_size > 0
    assert (bundle / "report.html").stat().st_size > 10_000


def test_run_computes_what_numpy_computes(
    optimized: tuple[Path, Path, dict[str, object]],
    weights: tuple[np.ndarray, np.ndarray],
    tmp_path: Path,
) -> None:
    x = np.random.default_rng().standard_normal((4, 16), np.float32)
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "y.npy"
    done = _collage("run", optimized[0], "--input", tmp_path / "x.npy", "--output", out)
    assert done.returncode == 0, done.stderr
    expected = np.maximum(x @ weights[0] + weights[1], 0)
    np.testing.assert_allclose(np.load(out), expected, rtol=1e-4, atol=1e-5)


def test_bench_and_explain_read_the_bundle(optimized: tuple[Path, Path, dict[str, object]]) -> None:
    bundle, log, _ = optimized
    done = _collage("bench", bundle, "--repeat", "20", "--json")
    assert done.returncode == 0, done.stderr
    assert 0 < json.loads(done.stdout)["median_sec"] < 0.5
    done = _collage("explain", bundle)
    assert done.returncode == 0, done.stderr
    assert "matmul" in done.stdout
    done = _collage("explain", log)
    assert done.returncode == 0, done.stderr
    assert "cheapest" in done.stdout


def test_replay_measures_nothing_and_needs_its_log(
    optimized: tuple[Path, Path, dict[str, object]], model: Path, tmp_path: Path
) -> None:
    _, log, _ = optimized
    before = log.read_bytes()
    common = ("optimize", model, *TARGETS, "-o", tmp_path / "b", "--replay", "--json")
    done = _collage(*common, "--shape", "x=4,16", "--log", log)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["search"]["measured"] == 0
    assert log.read_bytes() == before
    done = _collage(*common, "--shape", "x=5,16", "--log", log)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-t", "llvn"], "llvn"),
        (["-t", "openblas:speed=9"], "epilogues"),
        (["-t", "llvm"], "'x'"),
        (["-t", "llvm", "--shape", "z=1,2"], "'z'"),
        (["-t", "llvm", "--shape", "x=4,16", "--single-backend", "cutlass"], "cutlass"),
    ],
)
def test_mistakes_are_named_in_one_line(
    arguments: list[str], message: str, model: Path, tmp_path: Path
) -> None:
    done = _collage("optimize", model, *arguments, "-o", tmp_path / "b")
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: ")
    assert message in line
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "b").exists(), "nothing is left behind"


def test_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x00\x01 nothing that anyone could read")
    done = _collage("optimize", tmp_path / "m.onnx", "-t", "llvm", "-o", tmp_path / "b")
    assert done.returncode == 2
    assert "m.onnx" in done.stderr.splitlines()[-1]


def test_a_budget_is_for_imports_too(model: Path, tmp_path: Path) -> None:
    begin = time.monotonic()
    done = _collage(
        *("optimize", model, *TARGETS, "--shape", "x=64,16", "--time-budget", "30", "--json"),
        *("-o", tmp_path / "b"),
    )
    taken_sec = time.monotonic() - begin
    assert done.returncode == 0, done.stderr
    search = json.loads(done.stdout)["search"]
    imports_sec = 30 - search["budget_sec"]
    assert 0.2 < imports_sec < taken_sec
    assert search["wall_sec"] + imports_sec < taken_sec
    assert taken_sec < 33 or search["contenders_timed"] == 1 or search["measured"] <= 2


ONCE, TWICE, TERMINATED = [signal.SIGINT], [signal.SIGINT] * 2, [signal.SIGTERM]


@pytest.mark.parametrize("signals", [ONCE, TWICE, TERMINATED])
def test_interrupt_gives_a_bundle_and_twice_none_and_the_next_run_goes_on(
    signals: list[signal.Signals], model: Path, tmp_path: Path
) -> None:
    log, bundle, scratch = tmp_path / "log.jsonl", tmp_path / "b", tmp_path / "scratch"
    scratch.mkdir()
    command = [
        *(sys.executable, "-m", "collage", "optimize", str(model), *TARGETS, "--json"),
        *("--shape", "x=64,16", "--log", str(log), "-o", str(bundle)),
    ]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    try:
        deadline = time.monotonic() + 300
        while not (log.exists() and log.read_bytes().count(b"\n") >= 2):
            assert process.poll() is None, "ended before it could be interrupted"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        children = psutil.Process(process.pid).children(recursive=True)
        for number in signals:
            process.send_signal(number)
            time.sleep(0.1)
        output, errors = process.communicate(timeout=200)
    finally:
        process.kill()
    assert "Traceback" not in errors
    kept = log.read_bytes()
    if signals == ONCE:
        assert process.returncode == 0, errors
        assert errors.splitlines()[-1] == (
            f"interrupted: this is the best answer so far; measurements so far are in {log}"
        )
        search = json.loads(output)["search"]
        assert search["interrupted"] and not search["complete"]
        x = np.ones((64, 16), np.float32)
        assert np.isfinite(collage.load(bundle)(x=x)).all()
    else:
        kept_in = f"interrupted; measurements so far are in {log}"
        ended = (143, "terminated") if signals == TERMINATED else (130, kept_in)
        assert (process.returncode, errors.splitlines()[-1]) == ended
        assert not bundle.exists()
    assert children and not any(child.is_running() for child in children), "workers that are left"
    # The locks of devices and their queue are files for good.
    left = [path.name for path in scratch.glob("collage-*") if path.is_dir()]
    assert not left
    done = _collage(*command[3:])
    assert done.returncode == 0, done.stderr
    assert log.read_bytes().startswith(kept)
    assert json.loads(done.stdout)["search"]["from_log"] >= 1
