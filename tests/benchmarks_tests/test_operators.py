"""The operators' comparison: its cases, a run of a few of them that is gone on with, its page."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", exc_type=ImportError)
pytestmark = pytest.mark.torch

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from benchmarks.operators.grid import all_cases  # noqa: E402
from benchmarks.operators.network import find_case, network_cases  # noqa: E402
from benchmarks.operators.page import Row, markdown, spread_of  # noqa: E402
from benchmarks.operators.worker import largest_error, with_elements  # noqa: E402

_ROOT = Path(__file__).resolve().parents[2]
TINY = "tests.benchmarks_tests.test_operators:tiny"


def tiny() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Two equal convolutions, a batch norm and a product."""
    layers = [nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)]
    head = [nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)]
    return nn.Sequential(*layers, *head).eval(), (torch.randn(1, 8, 6, 6),)


def test_every_case_of_the_grid_has_a_name_of_its_own() -> None:
    cases = all_cases()
    assert len({case.key for case in cases}) == len(cases) > 250
    for family in ("conv3d_transpose", "group_norm", "reduction", "resize", "gather"):
        case = next(case for case in cases if case.family == family)
        module, inputs = case.build(0, torch.float32)
        assert module(*inputs) is not None


def test_of_equal_elements_any_place_is_right_but_none_twice() -> None:
    x, values = np.array([[3.0, 1.0, 3.0, 2.0]], "float16"), np.array([[3.0, 3.0]], "float16")
    wanted = with_elements([values, np.array([[0, 2]])], x, 1)
    for places, error in (([[2, 0]], 0.0), ([[2, 3]], 1 / 3), ([[2, 2]], math.inf)):
        found = with_elements([values, np.array(places)], x, 1)
        assert largest_error(found, wanted) == pytest.approx(error)
    middle = with_elements([np.array([2.0], "float16"), np.array([3])], x, 1)
    assert middle[1].tolist() == [[2.0]]


def test_a_networks_operators_are_found_once_and_run() -> None:
    cases = network_cases(TINY)
    assert [case.family for case in cases].count("conv2d") == 1
    for case in cases:
        module, inputs = find_case(case.key, TINY).build(0, torch.float32)
        assert module(*inputs) is not None


def test_a_run_is_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "operators.json"

    def run(*more: str) -> list[dict[str, object]]:
        command = [sys.executable, "-m", "benchmarks.operators.run", "--out", str(out)]
        command += ["--family", "shuffle", "--rounds", "2", "--turn", "0.005", "--threads", "1"]
        command += ["--cache", str(tmp_path / "cache"), *more]
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        rows: list[dict[str, object]] = json.loads(out.read_text())["rows"]
        return rows

    first = run("--match", "channels")
    assert [row["name"] for row in first] == ["channels of 1x232x14x14"]
    assert first[0]["ratio"] and first[0]["error"] == 0.0
    both = run("--match", "pixel shuffle")
    assert both[0] == first[0] and len(both) == 2
    page = out.with_suffix(".md").read_text()
    assert "## The worst twenty" in page and "channels of 1x232x14x14" in page


def test_the_page_says_what_is_slow_and_what_has_no_time() -> None:
    sec = {"torch": 1e-6, "tvm": 2e-6}
    slow = Row("sort", "a|b", "float32", spread_of([2.0, 2.2], [1.0, 1.0]), "tvm", sec)
    none = Row("scan", "c", "float32", reason="tvm: wrong, off by 1")
    text = markdown({"Threads": 1}, [slow, none])
    assert "1 of 1 that were timed take more than 1.5" in text and "1 have no time" in text
    assert "| sort: a\\|b | float32 | 2.10 |" in text and "tvm: wrong, off by 1" in text
