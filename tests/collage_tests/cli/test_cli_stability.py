"""``collage stability``: tables for people, one object for programs."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

from collage.cli import main
from collage.cost.contest import Interval, Outcome, PairedComparison
from collage.pipeline.studies import stability as module
from collage.pipeline.studies.stability import Flip, SearchAnswer, Stability

_NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[64, 64] x) => (float[64, 64] y) { y = Relu(x) }"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(_NET), path)
    return path


def test_one_answer_found_twice_is_stable(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stability", str(model), "-t", "llvm", "--searches", "2"]) == 0
    shown = capsys.readouterr().out
    assert "the best" in shown
    assert "2 searches, 1 distinct answers; 0 operators changed backend" in shown


def test_programs_get_one_object(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stability", str(model), "-t", "llvm", "--searches", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["searches"]) == 2 and found["flips"] == []
    assert found["largest_regret"] == 0.0 and found["spread"] >= 0.0
    assert found["comparisons"] == [{"outcome": "chosen", "ratio": None}]


def test_flips_say_what_is_known_of_them(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    backends = {"tvm": 1, "onednn": 1}
    kinds = (Outcome.TIE, Outcome.UNDECIDED, Outcome.UNDECIDED, Outcome.SLOWER)
    flips = tuple(Flip(n, "relax.exp", backends, kind) for n, kind in enumerate(kinds))
    undecided = PairedComparison(Outcome.UNDECIDED, Interval(1.01, 0.97, 1.06, n=24))
    searches = tuple(SearchAnswer(n, "search", 1e-3, 1.0) for n in range(2))
    found = Stability(searches, (PairedComparison(Outcome.CHOSEN), undecided), flips)
    monkeypatch.setattr(module, "stability", lambda *_, **__: found)
    assert main(["stability", str(model), "-t", "llvm", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["flips"]
    assert [row["outcome"] for row in rows] == [kind.value for kind in kinds]
    assert [row["is_tie"] for row in rows] == [True, False, False, False]
    assert main(["stability", str(model), "-t", "llvm"]) == 0
    shown = capsys.readouterr().out
    assert "4 operators changed backend, 1 of them outside ties, 2 not decided" in shown
    for meaning, count in (("a tie", 1), ("slower", 1), ("not decided", 3)):
        assert shown.count(meaning) == count, meaning


def test_a_file_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stability", "/nowhere.onnx", "-t", "llvm"]) == 2
    assert "there is no file '/nowhere.onnx'" in capsys.readouterr().err
