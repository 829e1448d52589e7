"""A model that nothing can compute is refused at once, with all that is wrong with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.contract.errors import ModelError
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


def test_constants_without_elements_are_named_in_tuples_too() -> None:
    nothing = relax.const(np.zeros((2, 0), "float32"))
    mod = graph([(2, 0)], lambda emit, x: emit(op.concat([nothing, x], axis=0)))
    with pytest.raises(ModelError, match="concat, a constant without elements"):
        collage.optimize(mod, ["llvm"])


@pytest.mark.parametrize("dtype", ["float32"])
def test_what_can_be_compiled_is_not_refused(dtype: str) -> None:
    for operator in operators():
        mod: tvm.IRModule = operator.module(dtype)
        require_computable(DataflowGraph.from_function(mod["main"], mod), operator.name)
