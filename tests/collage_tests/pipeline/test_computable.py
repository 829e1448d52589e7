"""A model that nothing can compute is refused at once, with all that is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.contract.errors import ModelError
from collage.cost.models import RooflineCostModel
from collage.pipeline.computable import require_computable
from collage.search.dataflow import DataflowGraph
from collage.testing import graph
from tests.backends_tests.tvm.operators import operators


def test_every_operator_is_named_and_nothing_is_measured() -> None:
    def body(emit: Any, x: Any) -> Any:
        found = [op.nonzero(x), op.unique(x), op.nonzero(emit(op.nn.relu(x)))]
        return relax.Tuple([emit(op.sum(emit(one))) for one in found])

    stages: list[str] = []
    with pytest.raises(ModelError) as caught:
        collage.optimize(graph([(8,)], body), ["llvm"], progress=lambda e: stages.append(e.stage))
    assert caught.value.value == ["nonzero", "unique"]
    assert "nonzero, whose shape depends on data (lv1, lv5); unique" in str(caught.value)
    assert not {"build", "measure", "search"} & set(stages)


def test_constants_without_elements_are_computed_with(tmp_path: Path) -> None:
    """Alone, in tuples, as what is folded out of constants, and as outputs."""
    nothing = relax.const(np.zeros((0, 4), "float32"))

    def body(emit: Any, x: Any) -> Any:
        filled = op.broadcast_to(relax.const(np.ones(1, "float32")), relax.ShapeExpr((4, 0)))
        product = emit(op.matmul(x, emit(filled)))
        sums = op.sum(emit(op.exp(nothing)), axis=0)
        joined = op.concat([nothing, x], axis=0)
        return relax.Tuple([emit(op.matmul(product, nothing)), emit(sums), emit(joined), nothing])

    x = np.random.default_rng(0).standard_normal((3, 4), dtype=np.float32)
    model = graph([(3, 4)], body)
    result = collage.optimize(
        model, ["llvm"], strategy="single:tvm", cost_model=RooflineCostModel()
    )
    found = collage.load(result.export(tmp_path / "net.bundle"))(x)
    for answer, wanted in zip(found, [0 * x, np.zeros(4), x, x[:0]], strict=True):
        np.testing.assert_array_equal(answer, wanted.astype("float32"))


@pytest.mark.parametrize("dtype", ["float32"])
def test_what_can_be_compiled_is_not_refused(dtype: str) -> None:
    for operator in operators():
        mod: tvm.IRModule = operator.module(dtype)
        require_computable(DataflowGraph.from_function(mod["main"], mod), operator.name)
