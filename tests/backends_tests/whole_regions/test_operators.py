"""Every operator of an importer that a library takes comes out right, in every dtype."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from collage.backends.contract import BuildContext
from collage.cost.reference import evaluate, largest_error
from collage.normalize import normalize
from tests.backends_tests.tvm.operators import Operator, operators
from tests.backends_tests.whole_regions.regions import Regions

_TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}
"""Half precision is rounded where it is stored."""

_LEAST = {"openvino": 160, "onnxruntime": 150}
"""How many of the operators it takes, at the least."""

_TUPLES = frozenset({"split-concat"})
"""Relax's own pass hands tuples to a partition, which a search never does."""


def _graphs(regions: Regions, dtype: str) -> dict[str, tuple[Operator, tvm.IRModule]]:
    wanted, found = regions.target(), {}
    for operator in operators():
        if operator.name in _TUPLES:
            continue
        try:
            mod = normalize(operator.module(dtype))
        except (TypeError, tvm.error.InternalError):
            continue  # Relax has no such operator in this dtype.
        if regions.is_taken_whole(mod, wanted):
            found[operator.name] = operator, mod
    return found


@pytest.mark.parametrize(
    "dtype",
    ["float32", pytest.param("float16", marks=pytest.mark.slow),
     pytest.param("bfloat16", marks=pytest.mark.slow)],
)  # fmt: skip
def test_operators_agree_with_the_reference(
    regions: Regions, dtype: str, context: BuildContext
) -> None:
    if dtype != "float32" and regions.name == "onnxruntime":
        pytest.skip("its regions have no half precision")
    graphs = _graphs(regions, dtype)
    assert len(graphs) >= _LEAST[regions.name]
    library = regions.library({name: mod for name, (_, mod) in graphs.items()}, context)
    rng = np.random.default_rng()
    wrong = []
    for name, (operator, mod) in graphs.items():
        inputs = operator.arrays(dtype, rng)
        kept = [array.copy() for array in inputs]
        results = library.run(name, inputs)
        for got, wanted in zip(results, evaluate(mod, kept), strict=True):
            if not (off := largest_error(got, wanted)) < _TOLERANCE[dtype]:
                wrong.append(f"{name}: off by {off:.1e}")
        for now, before in zip(inputs, kept, strict=True):
            assert np.array_equal(now, before), f"{name} writes into its input"
    assert not wrong, "\n".join(wrong)
