"""The reference is evaluated beside everything else, in a thread of its own."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from collage.cost.reference.fallback import Compiled


def test_operators_that_tvm_evaluates_leave_other_threads_builders_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All threads share one stack of builders, and whoever leaves has to be on its top."""

    class Untouched(list[relax.BlockBuilder]):
        def append(self, builder: relax.BlockBuilder) -> None:
            raise AssertionError("another thread may be building a function")

    monkeypatch.setattr(relax.BlockBuilder, "_stack", Untouched())
    x = relax.Var("x", relax.TensorType((3, 4), "float32"))
    array = np.arange(12, 0, -1, dtype=np.float32).reshape(3, 4)
    found = Compiled(None).evaluate(relax.op.sort(x, axis=1), [array])
    assert np.array_equal(found, np.sort(array, axis=1))
    values, indices = Compiled(None).evaluate(relax.op.topk(x, k=2, axis=1), [array])
    assert np.array_equal(values, array[:, :2]) and indices.tolist() == [[0, 1]] * 3
