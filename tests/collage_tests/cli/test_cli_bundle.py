"""``collage run``, ``bench`` and ``explain`` on a bundle that TVM alone compiled."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from collage.backends.contract import BuildContext
from collage.backends.link import CompiledLibrary
from collage.bundle import write_bundle
from collage.cli import main
from collage.tensor_info import TensorInfo
from tests.collage_tests.report.report_data import resnet_report
from tests.object_cache import cache_with_objects

SHAPE = (2, 3)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two inputs and two outputs: a + b, and the larger of both."""
    folder = tmp_path_factory.mktemp("bundle")
    builder = relax.BlockBuilder()
    a = relax.Var("a", relax.TensorType(SHAPE, "float32"))
    b = relax.Var("b", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [a, b]):
        with builder.dataflow():
            total, larger = builder.emit(relax.op.add(a, b)), builder.emit(relax.op.maximum(a, b))
            result = builder.emit_output(relax.Tuple([total, larger]))
        builder.emit_func_output(result)
    tvm.compile(builder.finalize(), target="llvm").export_library(str(folder / "model.so"))
    return write_bundle(
        folder,
        CompiledLibrary(folder / "model.so", ()),
        model="two.onnx",
        inputs=[TensorInfo(SHAPE, "float32", "a"), TensorInfo(SHAPE, "float32", "b")],
        outputs=[TensorInfo(SHAPE, "float32", "sum"), TensorInfo(SHAPE, "float32", "x/max")],
        context=BuildContext(cache_with_objects(folder), folder / "work", num_threads=2),
        device=tvm.target.Target("llvm"),
        versions={"tvm": tvm.__version__},
        report=resnet_report(),
    )


@pytest.fixture
def arrays(tmp_path: Path) -> dict[str, np.ndarray]:
    rng = np.random.default_rng()
    made = {name: rng.standard_normal(SHAPE).astype("float32") for name in "ab"}
    for name, array in made.items():
        np.save(tmp_path / f"{name}.npy", array)
    return made


@pytest.mark.parametrize("named", [True, False])
def test_run_computes_and_saves(
    named: bool, bundle: Path, arrays: dict[str, np.ndarray], tmp_path: Path
) -> None:
    a, b = str(tmp_path / "a.npy"), str(tmp_path / "b.npy")
    inputs = ["-i", f"b={b}", "-i", f"a={a}"] if named else ["-i", a, "-i", b]
    assert main(["run", str(bundle), *inputs, "-o", str(tmp_path / "out")]) == 0
    total = np.load(tmp_path / "out" / "0-sum.npy")
    larger = np.load(tmp_path / "out" / "1-x_max.npy")
    np.testing.assert_allclose(total, arrays["a"] + arrays["b"], rtol=1e-6)
    np.testing.assert_array_equal(larger, np.maximum(arrays["a"], arrays["b"]))


def test_run_says_that_inputs_are_random(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(bundle), "--seed", "7"]) == 0
    first = capsys.readouterr()
    assert first.err == "no --input given: random inputs, seed 7\n"
    assert [line.split(",")[0] for line in first.out.splitlines()] == [
        "sum: float32 2x3",
        "x/max: float32 2x3",
    ]
    assert main(["run", str(bundle), "--seed", "8"]) == 0
    assert capsys.readouterr().out != first.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-i", "{a}"], "input 'b' is missing"),
        (["-i", "{a}", "-i", "c={a}"], "unknown input 'c'"),
        (["-i", "{a}", "-i", "{wrong}"], "'b'"),
        (["-i", "{a}", "-i", "{a}", "-o", "one.npy"], "the model has 2 outputs: give a folder"),
        (["-o", "{a}/x"], "cannot write"),
    ],
)
def test_run_refuses_what_does_not_fit(
    arguments: list[str],
    message: str,
    bundle: Path,
    arrays: dict[str, np.ndarray],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.save(tmp_path / "wrong.npy", np.zeros((2, 4), "float32"))
    places = {name: str(tmp_path / f"{name}.npy") for name in ("a", "wrong")}
    assert main(["run", str(bundle), *(text.format(**places) for text in arguments)]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ")
    assert message in line


def test_bench_counts_and_summarizes(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(bundle), "--repeat", "30", "--warmup", "2", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    samples = np.array(value["samples_sec"])
    assert value["n"] == len(samples) == 30
    assert value["median_sec"] == pytest.approx(np.median(samples))
    low, high = np.quantile(samples, (0.1, 0.9))
    assert value["spread_sec"] == pytest.approx((high - low) / 2)
    assert 0 < value["min_sec"] <= value["median_sec"] <= value["max_sec"] < 1
    assert value["model"] == "two.onnx"
    assert main(["bench", str(bundle), "--repeat", "5"]) == 0
    assert "(n = 5, fastest " in capsys.readouterr().out


def test_explain_reads_the_bundle_s_report(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(bundle)]) == 0
    text = capsys.readouterr().out
    assert "onnxruntime" in text
    assert len([line for line in text.splitlines() if "nn.conv2d" in line]) == 53


def test_explain_names_a_damaged_report(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "manifest.json").write_text((bundle / "manifest.json").read_text())
    assert main(["explain", str(tmp_path)]) == 2
    assert "lacks report.json: copy it whole" in capsys.readouterr().err
    (tmp_path / "report.json").write_text("{}")
    assert main(["explain", str(tmp_path)]) == 2
    assert "schema version" in capsys.readouterr().err
