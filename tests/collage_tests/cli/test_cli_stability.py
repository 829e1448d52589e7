"""``collage stability``: tables for people, one object for programs."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

from collage.cli import main

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


def test_a_file_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stability", "/nowhere.onnx", "-t", "llvm"]) == 2
    assert "there is no file '/nowhere.onnx'" in capsys.readouterr().err
