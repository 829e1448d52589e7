"""``collage optimize``: what it hands to the search and what it prints; then the real thing."""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collage.cli import main
from collage.cost.models.roofline import RooflineCostModel
from collage.cost.progress import ProgressEvent
from collage.report import Report
from tests.collage_tests.report.report_data import resnet_report


class _Result:
    def __init__(self, report: Report) -> None:
        self.report = report

    def export(self, folder: Path, *, with_runtime: bool, with_libraries: bool) -> Path:
        (folder / "manifest.json").write_text("{}")
        return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"not looked at: the search is replaced")
    return path


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Put a function in the place of ``collage.pipeline.optimize.optimize``."""

    def install(function: Callable[..., Any]) -> None:
        api = types.ModuleType("collage.pipeline.optimize")
        api.optimize = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "collage.pipeline.optimize", api)

    return install


def test_without_an_output_the_bundle_lies_beside_the_model(
    model: Path, search: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    search(lambda *_args, **_kwargs: _Result(resnet_report()))
    assert main(["optimize", str(model), "-t", "llvm"]) == 0
    bundle = model.with_name("m.bundle")
    assert (bundle / "manifest.json").exists()
    assert f"bundle  {bundle}\n" in capsys.readouterr().out


def test_every_option_reaches_the_search(
    model: Path, tmp_path: Path, search: Callable[..., None]
) -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def record(*args: Any, **kwargs: Any) -> _Result:
        calls.append((args, kwargs))
        return _Result(resnet_report())

    search(record)
    log = tmp_path / "log.jsonl"
    text = (
        f"optimize {model} -t llvm -t onednn:layout=nhwc --shape x=1,3,8,8 --log {log} "
        f"-o {tmp_path / 'b'} --time-budget 30 --refine 5 --refine-storage sqlite:///r.db "
        "--threads 2 --allow-code --workers ray://head:10001 --pin backbone.*=onednn "
        "--ban softmax=onednn --ban softmax=openblas --memory-limit 256M "
        "--max-error 0.01 --precision bfloat16 --calibration entropy --metric top1 "
        "--weights beside --most-buckets 3 --covers 4 --layouts plain,channels_last"
    )
    assert main([*text.split(), "-t", '{"kind": "openblas", "epilogues": false}']) == 0
    assert main(f"optimize {model} -t llvm -o {tmp_path / 'c'} --single-backend tvm".split()) == 0
    (args, kwargs), (_, single) = calls
    assert kwargs.pop("progress")
    assert args == (
        model,
        ["llvm", {"kind": "onednn", "layout": "nhwc"}, {"kind": "openblas", "epilogues": False}],
    )
    assert kwargs == {
        "shapes": {"x": (1, 3, 8, 8)},
        "most_buckets": 3,
        "log": str(log),
        "replay": False,
        "time_budget_sec": pytest.approx(30.0, abs=20.0),
        "strategy": "search",
        "covers": 4,
        "layouts": ["plain", "channels_last"],
        "refine_trials": 5,
        "refine_storage": "sqlite:///r.db",
        "num_threads": 2,
        "ieee_denormals": False,
        "allow_code": True,
        "cost_model": None,
        "workers": "ray://head:10001",
        "inputs": None,
        "pin": {"backbone.*": ["onednn"]},
        "ban": {"softmax": ["onednn", "openblas"]},
        "memory_limit_bytes": 256 << 20,
        "max_error": 0.01,
        "precision": ["bfloat16"],
        "calibration": "entropy",
        "metric": "top1",
        "weights": "beside",
    }
    assert single["strategy"] == "single:tvm"
    assert single["covers"] == 1
    assert single["shapes"] is None
    assert single["num_threads"] is None
    assert single["workers"] == "local"
    assert single["memory_limit_bytes"] is None
    assert single["max_error"] is None and single["precision"] is None
    assert single["calibration"] == "auto" and single["metric"] is None
    assert single["weights"] == "auto"


def test_an_estimate_brings_a_cost_model_of_its_own(
    model: Path, tmp_path: Path, search: Callable[..., None]
) -> None:
    given: list[Any] = []

    def record(*_: Any, **kwargs: Any) -> _Result:
        given.append(kwargs["cost_model"])
        return _Result(resnet_report())

    search(record)
    text = f"optimize {model} -t cuda:arch=sm_90a -t cublas -o {tmp_path / 'b'} --estimate"
    assert main(text.split()) == 0
    assert [type(cost_model) for cost_model in given] == [RooflineCostModel]


@pytest.mark.parametrize(
    ("other", "advice"),
    [
        ("--replay --log x.jsonl", "--replay takes them from the log: leave one of them out"),
        ("--time-budget 3", "leave out --time-budget"),
    ],
)
def test_an_estimate_measures_nothing(
    model: Path, tmp_path: Path, other: str, advice: str, capfd: pytest.CaptureFixture[str]
) -> None:
    text = f"optimize {model} -t cuda:arch=sm_90a -o {tmp_path / 'b'} --estimate {other}"
    assert main(text.split()) == 2
    error = capfd.readouterr().err
    assert "--estimate measures nothing" in error and advice in " ".join(error.split())


def _noisy(*_: Any, progress: Callable[[ProgressEvent], None], **__: Any) -> _Result:
    progress(ProgressEvent("measure", 1, 2, "conv2d"))
    os.write(1, b"a compiler's chatter\n")
    return _Result(resnet_report())


def test_json_is_all_that_stands_on_standard_output(
    model: Path, tmp_path: Path, search: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    search(_noisy)
    bundle = tmp_path / "b"
    assert main(["optimize", str(model), "-t", "llvm", "-o", str(bundle), "--json"]) == 0
    captured = capfd.readouterr()
    value = json.loads(captured.out)
    assert value["bundle"] == str(bundle)
    assert value["report"] == str(bundle / "report.html")
    report = resnet_report()
    assert [e["name"] for e in value["end_to_end"]] == [e.name for e in report.end_to_end]
    assert value["search"]["measured"] == report.search.measured
    assert sum(b["partitions"] for b in value["backends"]) == sum(
        not p.inline for p in report.partitions
    )
    assert captured.err.splitlines() == ["[measure] 1/2 conv2d", "a compiler's chatter"]


def test_words_say_who_got_what_and_where_it_lies(
    model: Path, tmp_path: Path, search: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    search(_noisy)
    bundle, log = tmp_path / "b", tmp_path / "l.jsonl"
    text = ["optimize", str(model), "-t", "llvm", "-o", str(bundle), "--log", str(log)]
    assert main(text) == 0
    captured = capfd.readouterr()
    assert "chatter" not in captured.out
    for expected in ("onednn", "onnxruntime", "57 measured", str(bundle), str(log)):
        assert expected in captured.out


@pytest.mark.parametrize("with_log", [True, False])
def test_interruption_says_what_was_kept(
    with_log: bool,
    model: Path,
    tmp_path: Path,
    search: Callable[..., None],
    capfd: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: Any, **__: Any) -> _Result:
        raise KeyboardInterrupt

    search(interrupted)
    log = tmp_path / "l.jsonl"
    extra = ["--log", str(log)] if with_log else []
    assert main(["optimize", str(model), "-t", "llvm", "-o", str(tmp_path / "b"), *extra]) == 130
    kept = f"measurements so far are in {log}" if with_log else "nothing was kept without --log"
    assert capfd.readouterr().err == f"interrupted; {kept}\n"
