"""Reads and writes at places that data choose: the form that kernels get right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from collage.cost.reference import evaluate
from collage.normalize import normalize
from collage.testing import graph
from tests.collage_tests.normalize.oracle import call_of, operators, run


def test_a_table_is_read_inside_of_it() -> None:
    def body(_: Any, x: relax.Var, i: relax.Var) -> relax.Expr:
        return op.take(x, i, axis=0)

    mod = normalize(graph([(5, 3), (4,)], body, ["float32", "int64"]))
    assert str(call_of(mod, "take").attrs.mode) == "clip"
    data = np.random.default_rng().standard_normal((5, 3)).astype("float32")
    (found,) = run(mod, [data, np.array([0, 5, -1, 10**12])])
    np.testing.assert_array_equal(found, data[[0, 4, 0, 4]])


@settings(deadline=None, max_examples=20)
@given(st.data())
def test_scatters_into_a_part_are_right(data: st.DataObject) -> None:
    """TVM's own program for them was wrong, in silence."""
    shape = data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=4), "shape")
    axis = data.draw(st.integers(0, len(shape) - 1), "axis")
    reached = [data.draw(st.integers(1, extent)) for extent in shape]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, updates = (rng.standard_normal(s).astype("float32") for s in (shape, reached))
    order = np.argsort(rng.random([*reached[:axis], shape[axis], *reached[axis + 1 :]]), axis)
    places = np.take(order, range(reached[axis]), axis)
    places = np.where(rng.random(reached) < 0.5, places, places - shape[axis])

    def body(_: Any, x: relax.Var, i: relax.Var, u: relax.Var) -> relax.Expr:
        return op.scatter_elements(x, i, u, axis)

    mod = graph([shape, reached, reached], body, ["float32", "int64", "float32"])
    (wanted,) = evaluate(mod, [x, places, updates])
    (found,) = run(normalize(mod), [x, places, updates])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("shape", "reached", "axis", "kept"),
    [
        ((5, 6, 4), (3, 4, 2), 1, True),
        ((5, 6, 4), (3, 6, 4), 0, True),
        ((5, 6, 4), (3, 4, 2), 0, False),
        ((5, 6, 4), (3, 4, 2), 2, False),
    ],
)
def test_only_what_is_wrong_is_spelled_out(
    shape: tuple[int, ...], reached: tuple[int, ...], axis: int, kept: bool
) -> None:
    def body(_: Any, x: relax.Var, i: relax.Var, u: relax.Var) -> relax.Expr:
        return op.scatter_elements(x, i, u, axis)

    mod = normalize(graph([shape, reached, reached], body, ["float32", "int64", "float32"]))
    names = operators(mod)
    assert ("scatter_elements" in names) == kept
    assert ("scatter_nd" in names) != kept
