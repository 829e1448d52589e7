"""What a workload is run on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.contract.errors import OutOfRangeError
from collage.cost.worker.build import test_data as make_test_data
from collage.cost.workload.workload import Workload
from collage.testing import graph

Emit = Callable[[relax.Expr], relax.Var]

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)


def selecting(times: float) -> Callable[[Emit, relax.Expr], relax.Expr]:
    def build(emit: Emit, x: relax.Expr) -> relax.Expr:
        place = emit(op.astype(emit(op.multiply(x, relax.const(np.float32(times)))), "int64"))
        return op.gather_elements(relax.const(TABLE), place, axis=0)

    return build


def test_inputs_are_positive_where_noise_selects_nothing() -> None:
    mod = graph([(64, 3)], selecting(3.9))
    sample = make_test_data(Workload.from_module(mod), mod, 0)
    places = (sample.inputs[0] * np.float32(3.9)).astype("int64")
    assert places.min() == 0 and places.max() == 3
    assert np.array_equal(sample.expected[0], np.take_along_axis(TABLE, places, 0))


def test_indices_outside_of_a_table_are_said() -> None:
    mod = graph([(64, 3)], selecting(1000.0))
    with pytest.raises(OutOfRangeError, match="gather_elements cannot be evaluated"):
        make_test_data(Workload.from_module(mod), mod, 0)
