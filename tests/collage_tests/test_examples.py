"""The examples run as a user would run them."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnxruntime
import psutil
import pytest

import collage
from tests.entry_points import with_entry_points

_ROOT = Path(__file__).resolve().parents[2]
_EXAMPLES = _ROOT / "examples"


def run(
    script: str, *arguments: str, cwd: Path, limit_sec: float = 300.0, path: str = str(_ROOT)
) -> str:
    """Standard output of an example."""
    done = subprocess.run(
        [sys.executable, str(_EXAMPLES / script), *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=limit_sec,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that quickstart.py filled."""
    folder = tmp_path_factory.mktemp("quickstart")
    assert "[" in run("quickstart.py", str(folder), cwd=folder)
    return folder


def test_quickstart_bundle_computes_the_model(quickstart: Path) -> None:
    features = np.random.default_rng(11).standard_normal((8, 64), np.float32)
    session = onnxruntime.InferenceSession(str(quickstart / "classifier.onnx"))
    (expected,) = session.run(None, {"features": features})
    actual = collage.load(quickstart / "bundle")(features=features)
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)


def test_load_bundle_needs_only_the_runtime(quickstart: Path, tmp_path: Path) -> None:
    moved = (quickstart / "bundle").rename(tmp_path / "elsewhere")
    try:
        script = _EXAMPLES / "load_bundle.py"
        # None in sys.modules makes an import fail as if the package were not installed.
        blocked = (
            "import runpy, sys\n"
            "sys.modules.update(collage=None, onnx=None, onnxruntime=None)\n"
            f"sys.argv = ['load_bundle.py', {str(moved)!r}]\n"
            f"runpy.run_path({str(script)!r}, run_name='__main__')\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", blocked],
            cwd=tmp_path,
            # TVM's compiler library is not loaded: what needs it must not be imported.
            env={**os.environ, "TVM_USE_RUNTIME_LIB": "1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert "float32[8, 10]" in done.stdout
    finally:
        moved.rename(quickstart / "bundle")


def test_relax_pass_prints_a_module(tmp_path: Path) -> None:
    script = run("relax_pass.py", str(tmp_path), cwd=tmp_path)
    assert "@R.function" in script
    assert (tmp_path / "log.jsonl").stat().st_size > 0


@pytest.mark.torch
def test_torch_model_agrees_with_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    path = with_entry_points(tmp_path / "packages")
    shown = run("torch_model.py", str(tmp_path), cwd=tmp_path, path=path)
    assert "is chosen" in shown and f"exported to {tmp_path / 'bundle'}" in shown
    differences = [float(line.split()[-1]) for line in shown.splitlines() if "largest diff" in line]
    assert len(differences) == 2 and max(differences) < 1e-4


@pytest.mark.fleet
@pytest.mark.parametrize("kind", ["rpc", "ray"])
def test_a_whole_fleet_comes_searches_and_goes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "ray":
        pytest.importorskip("ray", reason="needs the extra [ray]")
    # Whatever is started has it from us, whoever its parent is by then.
    monkeypatch.setenv("COLLAGE_EXAMPLE", str(tmp_path))
    shown = run("fleet_on_loopback.py", str(tmp_path), kind, cwd=tmp_path)
    assert shown.count(" yes ") == 2 and f"the {kind} fleet is gone" in shown
    report = json.loads((tmp_path / f"{kind}.bundle" / "report.json").read_text())
    assert report["search"]["measured"] > 0
    assert sum(sum(worker["tasks"].values()) for worker in report["workers"]) > 0
    features = np.random.default_rng(12).standard_normal((8, 64), np.float32)
    scores = collage.load(tmp_path / f"{kind}.bundle")(features=features)
    session = onnxruntime.InferenceSession(str(tmp_path / "classifier.onnx"))
    np.testing.assert_allclose(scores, session.run(None, {"features": features})[0], 1e-3, 1e-3)
    left = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("COLLAGE_EXAMPLE") == str(tmp_path):
                left.append(process)
    assert not left


@pytest.mark.slow
def test_demo_twice(tmp_path: Path) -> None:
    first = run("demo.py", cwd=tmp_path, limit_sec=1200)
    second = run("demo.py", cwd=tmp_path, limit_sec=300)
    assert "no log yet" in first
    assert "0 measured now" in second
    for shown in (first, second):
        assert "Largest output difference" in shown
        assert "onnxruntime" in shown
        assert "onednn" in shown
    assert (tmp_path / "out" / "demo" / "bundle-collage" / "report.html").exists()


def test_a_decoder_s_prefill_and_steps_are_what_numpy_computes(tmp_path: Path) -> None:
    shown = run("decoder.py", str(tmp_path), cwd=tmp_path)
    assert "prefill: tokens[5]" in shown and "step: tokens[1]" in shown
    decoder = runpy.run_path(str(_EXAMPLES / "decoder.py"))
    room, weights = decoder["ROOM"], decoder["random_weights"]()
    tokens = np.random.default_rng().integers(0, decoder["VOCABULARY"], room)
    expected = _decoded(weights, tokens, decoder["HEADS"])
    bundle = collage.load(tmp_path / "decoder.bundle")
    begin = decoder["PROMPT"]
    empty = np.zeros((room, decoder["WIDTH"]), np.float32)
    scores, keys, values = bundle["prefill"](
        tokens[:begin], *decoder["where"](0, begin), empty, empty
    )
    close = {"rtol": 1e-3, "atol": 1e-3}
    np.testing.assert_allclose(scores, expected[:begin], **close)
    for position in range(begin, room):
        one = tokens[position : position + 1]
        scores, keys, values = bundle["step"](one, *decoder["where"](position, 1), keys, values)
        np.testing.assert_allclose(scores[0], expected[position], **close)


def _decoded(weights: dict[str, np.ndarray], tokens: np.ndarray, heads: int) -> np.ndarray:
    """All scores of a sequence at once, without any cache."""
    x = weights["embedding"][tokens].astype("float64")
    count, width = x.shape
    query, key, value = (
        (x @ weights[name]).reshape(count, heads, -1).swapaxes(0, 1)
        for name in ("query", "key", "value")
    )
    scores = query @ key.swapaxes(1, 2) / np.sqrt(width / heads)
    scores = np.where(np.tril(np.ones((count, count), bool)), scores, -np.inf)
    looks = np.exp(scores - scores.max(axis=-1, keepdims=True))
    seen = (looks / looks.sum(axis=-1, keepdims=True)) @ value
    y = x + seen.swapaxes(0, 1).reshape(count, width) @ weights["out"]
    return y @ weights["head"]
