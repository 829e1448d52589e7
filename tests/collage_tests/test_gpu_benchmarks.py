"""The GPU check's parts, rehearsed on the CPU: what runs there must not fail on trivia."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.float64 import widened

_ROOT = Path(__file__).resolve().parents[2]
_CASES = "tests.collage_tests.gpu_rehearsal_cases"


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
