"""The GPU check's parts, rehearsed on the CPU: what runs there must not fail on trivia."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.gpu import table
from benchmarks.gpu.cases.float64 import widened
from benchmarks.gpu.rows import Row, timed
from benchmarks.timing.lateness import told_where_it_is

_ROOT = Path(__file__).resolve().parents[2]
_CASES = "tests.benchmarks_tests.gpu_rehearsal_cases"


def _half_module() -> tvm.IRModule:
    """A convolution with a rounded result, scaled and clipped, and an attention in bfloat16."""
    x = relax.Var("x", relax.TensorType((2, 6, 6, 8), "float16"))
    q = relax.Var("q", relax.TensorType((1, 5, 2, 8), "bfloat16"))
    weight = np.random.default_rng().standard_normal((4, 3, 3, 8)).astype(np.float16)
    builder = relax.BlockBuilder()
    with builder.function("main", [x, q]):
        with builder.dataflow():
            y = builder.emit(
                op.nn.conv2d(
                    x,
                    relax.const(weight),
                    data_layout="NHWC",
                    kernel_layout="OHWI",
                    out_dtype="float32",
                )
            )
            y = builder.emit(op.astype(y, "float16"))
            y = builder.emit(op.multiply(y, relax.const(0.3, "float16")))
            y = builder.emit_output(op.clip(y, -2.0, 2.0))
            a = builder.emit_output(op.nn.attention(q, q, q, scale=0.5))
        builder.emit_func_output(relax.Tuple([y, a]))
    return builder.get()


def test_widened_module_computes_in_float64() -> None:
    import ml_dtypes

    rng = np.random.default_rng()
    mod = _half_module()
    reference = widened(mod)
    assert "float16" not in reference.module.script(show_meta=False)
    x = rng.standard_normal((2, 6, 6, 8)).astype(np.float16)
    q = rng.standard_normal((1, 5, 2, 8)).astype(ml_dtypes.bfloat16)
    conv, attention = reference.run([x, q])
    weight, scale = reference.constants
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(1, 2))
    expected = np.clip(np.einsum("nhwcij,oijc->nhwo", windows, weight) * scale, -2, 2)
    np.testing.assert_allclose(conv, expected, rtol=1e-12)
    wide = q.astype(np.float64)
    scores = np.exp(np.einsum("bqhd,bkhd->bhqk", wide, wide) * 0.5)
    mixed = np.einsum("bhqk,bkhd->bqhd", scores / scores.sum(-1, keepdims=True), wide)
    np.testing.assert_allclose(attention, mixed, rtol=1e-5)


def test_numerics_contain_every_failure(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu.numerics", "--device", "cpu"]
    command += ["--families", _CASES, "--out", str(tmp_path), "--cache", str(tmp_path / "cache")]
    done = subprocess.run(
        [*command, "--compilers", "2", "--runners", "1"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    lines = (tmp_path / "numerics.jsonl").read_text().splitlines()
    results = {entry["name"]: entry for entry in map(json.loads, lines)}
    assert {name: entry["status"] for name, entry in results.items()} == {
        "dense_bias_relu": "ok",
        "dense_bias_gelu": "ok",
        "half": "ok",
        "no_pattern": "not compiled",
        "refused": "not compiled",
        "crash": "not run",
        "error": "not run",
        "wrong": "wrong",
    }
    assert results["dense_bias_relu"]["largest_error"] < 1e-5
    assert 1e-5 < results["half"]["largest_error"] < 5e-3
    assert "took nothing" in results["no_pattern"]["message"]
    assert "always fails" in results["refused"]["message"]
    assert "illegal memory access" in results["error"]["message"]
    assert "ended with -" in results["crash"]["message"]
    page = (tmp_path / "numerics.md").read_text()
    assert f"| {_CASES} | 8 | 3 |" in page


def test_numerics_stop_at_the_time_budget(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu.numerics", "--device", "cpu"]
    command += ["--families", _CASES, "--out", str(tmp_path), "--time-budget", "0"]
    done = subprocess.run(
        command, cwd=_ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "| 8 | 0 |  | 0 | 0 | 0 | 8 |" in done.stdout


def test_numerics_of_nothing_are_no_success(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu.numerics", "--device", "cpu"]
    command += ["--families", _CASES, "--out", str(tmp_path), "--match", "no such case"]
    done = subprocess.run(
        command, cwd=_ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "no case was run" in done.stdout


@pytest.mark.parametrize("arguments", [["--stage", "nonsense"], ["--nonsense"]])
def test_script_refuses_unknown_words(arguments: list[str]) -> None:
    done = subprocess.run(
        ["bash", str(_ROOT / "scripts" / "gpu_check.sh"), *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert "nonsense" in done.stderr


def _row(name: str, sec: list[float], **rest: object) -> Row:
    return Row(name, list(sec), [1.01 * s for s in sec], **rest)  # type: ignore[arg-type]


def test_table_shows_ratios_of_rounds_and_reasons(tmp_path: Path) -> None:
    drift = [1.0, 3.0, 2.0]  # the device's, round by round: ratios are blind to it
    figures = {
        "chosen": ["search"],
        "partitions": {"cutlass": 3, "tvm": 1},
        "search": {"measured": 7},
    }
    rows = [
        _row("eager", [2e-3 * d for d in drift], difference=1e-3),
        _row("torch.compile", [1e-3 * d for d in drift], difference=2e-3),
        Row("onnxruntime", failure="not available: no provider", missing=True),
        _row("eager, CUDA graph", [1e-3 * d for d in drift], figures={"settings": {"graph": "1"}}),
        _row("collage", [8e-4 * d for d in drift], difference=3e-3, figures=figures),
        Row("search's answer", same_as="collage"),
        _row("single:cublas", [9e-4 * d for d in drift]),
        Row("single:cudnn", failure="RuntimeError: a | b"),
    ]
    record = table.Record(runs=[{"time": "now", "GPU": {"name": "g"}}])
    record.add("net, batch 1", rows)
    table.write(record, tmp_path)
    page = (tmp_path / "gpu.md").read_text()
    ratios = "0.800 | 0.400 | 0.889 | single:cublas | search (cutlass 3, tvm 1)"
    assert f"| net, batch 1 | {ratios} |" in page
    assert "| collage | 0.800 | 0.800 to 0.800 | 0.400 | 0.400 to 0.400 | 1.600 | 3.0e-03 |" in page
    assert "search's answer (same library as collage) | 0.800" in page
    assert "onnxruntime was not run: not available" in page
    assert "eager, CUDA graph with `graph=1`." in page
    assert "single:cudnn failed: RuntimeError: a \\| b" in page
    again = table.Record.load(tmp_path / "gpu.json")
    assert again.is_done("net, batch 1")
    assert not again.is_done("net, batch 16")
    assert table.markdown(again) == page


def test_failed_choice_is_no_result() -> None:
    record = table.Record(runs=[{}])
    record.add("net, batch 1", [Row("collage", failure="MeasurementError: nothing runs")])
    assert not record.is_done("net, batch 1")
    assert "failed: MeasurementError: nothing runs" in table.markdown(record)


@pytest.mark.torch
@pytest.mark.timeout(1200)
def test_whole_way_on_a_tiny_network(tmp_path: Path) -> None:
    command = ["bash", str(_ROOT / "scripts" / "gpu_check.sh"), "--dry-run"]
    command += ["--stage", "benchmarks"]
    command += ["--models", "tiny_convolutions", "--targets", "llvm,openblas"]
    # At once, as on a machine with two GPUs, the third beside the first one.
    command += ["--batch", "2,3,4", "--gpus", "0,1", "--abreast", "2"]
    command += ["--peers", "eager;eager, CUDA graph", "--rounds", "3", "--time-budget", "900"]
    environment = {**os.environ, "PYTHON": sys.executable}

    def check(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, "--out", str(tmp_path), *more],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    done = check()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on GPU 0" in done.stdout
    assert "on GPU 1" in done.stdout
    record = table.Record.load(tmp_path / "gpu.json")
    assert len(record.results) == 3
    for key in record.results:
        rows = {row.engine: row for row in record.rows(key)}
        assert {"collage", "single:tvm", "single:openblas", "eager"} <= set(rows)
        assert "CUDA graphs need a CUDA device" in rows["eager, CUDA graph"].failure
        for name in timed(list(rows.values())):
            row = rows[rows[name].same_as or name]
            assert len(row.round_sec) == 3
            assert all(sec > 0 for sec in row.round_sec)
            assert row.difference is not None
            assert row.difference < 1e-4
    assert (tmp_path / "collage.jsonl").stat().st_size > 0
    more = check("--reuse", str(tmp_path))
    assert more.returncode == 0, more.stdout + more.stderr
    assert "tiny_convolutions, batch 2: weights" not in more.stdout
    assert len(table.Record.load(tmp_path / "gpu.json").results) == 3


@pytest.mark.torch
@pytest.mark.parametrize("name", ["tiny_convolutions", "tiny_attention"])
def test_saved_networks_are_the_same_everywhere(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    from benchmarks.gpu import networks

    module = networks.build(name, seed=3)
    inputs = networks.NETWORKS[name].inputs(2, torch.Generator().manual_seed(3))
    networks.save(module, inputs, tmp_path / "weights.pt", torch.float16)
    half, (half_input,) = networks.load(name, tmp_path / "weights.pt", torch.float16)
    wide, (wide_input,) = networks.load(name, tmp_path / "weights.pt", torch.float32)
    expected = module(*inputs).detach().numpy()
    rounded = wide(wide_input).numpy()
    assert 0 < np.abs(rounded - expected).max() / np.abs(expected).max() < 2e-2
    assert {p.dtype for p in half.parameters()} == {torch.float16}
    for a, b in zip(half.parameters(), wide.parameters(), strict=True):
        assert torch.equal(a.float(), b)
    other = networks.NETWORKS[name].inputs(2, torch.Generator().manual_seed(4))
    assert np.abs(module(*other).detach().numpy() - expected).max() > 0.01 * np.abs(expected).max()
    assert half_input.shape == inputs[0].shape


def test_a_late_search_says_where_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    with told_where_it_is(0.05):
        time.sleep(0.3)
    with told_where_it_is(60.0):
        pass
    told = capfd.readouterr().out.splitlines()
    assert len(told) == 1 and "late, at" in told[0]
    assert "test_a_late_search_says_where_it_is" in told[0]
