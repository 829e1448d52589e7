"""Predicates and readers that the library backends share."""

from __future__ import annotations

import pytest
from tvm import relax

from collage.backends.contract import Match
from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.relax.calls.layouts import permutation
from collage.backends.relax.patterns import derives
from collage.backends.relax.static_shape import static_shape


def tensor(*shape: int) -> relax.Var:
    return relax.Var("x", relax.TensorType(shape, "float32"))


def permute(x: relax.Expr, axes: list[int] | None) -> relax.Expr:
    return relax.BlockBuilder().normalize(relax.op.permute_dims(x, axes))


def test_a_planners_refusal_is_a_predicates_reason() -> None:
    def plan(match: Match) -> int:
        if static_shape(match.root, "the data")[0] > 2:
            raise UnsupportedProblemError("more than two rows", value=match.root)
        return 1

    predicate = derives(plan)
    assert predicate(Match(tensor(2, 3), {}))
    refused = predicate(Match(tensor(3, 3), {}))
    assert not refused
    assert refused.reason == "more than two rows"


def test_other_errors_of_a_planner_are_not_taken_for_refusals() -> None:
    predicate = derives(lambda match: match.annotated["missing"])
    with pytest.raises(KeyError, match="missing"):
        predicate(Match(tensor(1), {}))


def test_axes_of_a_permutation_count_from_0() -> None:
    x = tensor(2, 3, 4)
    assert permutation(permute(x, [-1, 0, -2])) == [2, 0, 1]
    assert permutation(permute(x, None)) == [2, 1, 0]
    assert permutation(x) is None
    assert permutation(relax.op.nn.relu(x)) is None


def test_a_static_shape_is_plain_integers() -> None:
    shape = static_shape(tensor(2, 3), "the data")
    assert shape == (2, 3)
    assert all(type(extent) is int for extent in shape)
    with pytest.raises(UnsupportedProblemError, match="the data has no static shape"):
        static_shape(relax.Var("x", relax.TensorType(dtype="float32", ndim=1)), "the data")
