"""Quotients that are rounded, which a product with the reciprocal makes another whole number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.contract import BuildContext
from collage.cost.models import RooflineCostModel
from collage.search.dataflow import DataflowGraph
from collage.search.rules import default_rules
from collage.targets import resolve_targets
from collage.testing import graph
from tests.backends_tests.openvino.support import REGIONS, installed

pytestmark = installed


def _taken(mod: tvm.IRModule) -> set[str]:
    """The operators that OpenVINO is offered."""
    found = DataflowGraph.from_function(mod["main"], mod)
    candidates = default_rules(resolve_targets(["llvm", "openvino"])).find(found).candidates
    mine = [one.nodes for one in candidates if one.target.backend == "openvino"]
    return {found.op_name(i) for nodes in mine for i in range(len(found)) if nodes >> i & 1}


def _answers(mod: tvm.IRModule, folder: Path, *inputs: np.ndarray) -> list[np.ndarray]:
    result = collage.optimize(
        mod, ["llvm", "openvino"], strategy="greedy", cost_model=RooflineCostModel()
    )
    found = collage.load(result.export(folder / "net.bundle"))(*inputs)
    return list(found) if isinstance(found, list) else [found]


def _in_bytes(emit: Any, x: Any) -> Any:
    """As ONNX's ``DynamicQuantizeLinear`` is defined, for numbers of both signs."""
    low, high = emit(op.min(x)), emit(op.max(x))
    step = emit(op.divide(emit(op.subtract(high, low)), relax.const(255.0, "float32")))
    point = emit(op.round(emit(op.divide(emit(op.negative(low)), step))))
    whole = emit(op.add(emit(op.round(emit(op.divide(x, step)))), point))
    return relax.Tuple([emit(op.clip(whole, 0, 255)), step])


def test_scales_of_bytes_and_what_they_divide_are_exact(tmp_path: Path) -> None:
    """Ties, as the standard's own case has one: -2.5 is 127.5 steps of 5/255."""
    x = np.array([0, 2, -3, -2.5, 1.34, 0.5] * 10, np.float32)
    whole, step = _answers(graph([x.shape], _in_bytes), tmp_path, x)
    exact = (x.max() - x.min()) / np.float32(255)
    np.testing.assert_array_equal(step, exact)
    np.testing.assert_array_equal(whole, np.clip(np.rint(x / exact) + np.rint(3 / exact), 0, 255))


def test_quotients_that_are_not_rounded_are_taken() -> None:
    def mean(emit: Any, x: Any, y: Any) -> Any:
        return emit(op.exp(emit(op.divide(x, y))))

    assert "divide" in _taken(graph([(8, 9), (8, 1)], mean))
    assert "divide" not in _taken(graph([(8, 9)], _in_bytes))


def test_whole_quotients_stay_whole(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    divisor = rng.integers(1, 200, 4000).astype("float32")
    times = rng.integers(0, 1000, 4000).astype("float32")

    def body(emit: Any, x: Any, y: Any) -> Any:
        floor = emit(op.floor(emit(op.add(emit(op.divide(x, y)), relax.const(1.0, "float32")))))
        return relax.Tuple([emit(op.floor_divide(x, y)), floor])

    mod = graph([(4000,), (4000,)], body)
    divided, floor = _answers(mod, tmp_path, times * divisor, divisor)
    np.testing.assert_array_equal(divided, times)
    np.testing.assert_array_equal(floor, times + 1)


def test_a_region_whose_only_constant_has_no_elements(context: BuildContext) -> None:
    """The shape of a scalar is such a constant."""
    mod = graph([(1, 1)], lambda emit, x: op.reshape(emit(op.exp(x)), ()))
    x = np.array([[0.5]], np.float32)
    library = REGIONS.library({"scalar": mod}, context)
    np.testing.assert_allclose(library.run("scalar", [x])[0], np.exp(x[0, 0]), rtol=1e-6)
