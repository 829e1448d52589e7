"""Tensors that are cut into pieces and written into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.collage_tests.importers.torch.torch_functions import (
    Cases,
    program_of,
    require_agreement,
    rows,
)

torch = pytest.importorskip("torch", exc_type=ImportError)

pytestmark = pytest.mark.torch


def _pieces_written(x: Any) -> Any:
    x = x.clone()
    for number, piece in enumerate(x.unbind(1)):
        piece.mul_(number + 2)
    return x


def _whole_written(x: Any) -> Any:
    x = x.clone()
    pieces = x.unbind(-1)
    x += 1
    return torch.stack([pieces[-1], pieces[0]]) * 2, x


def _recursive_filter(x: Any) -> Any:
    """As filters of audio are written: windows of one tensor, and all of another, step by step."""
    kept = torch.zeros(x.shape[0], x.shape[1] + 2)
    for step, now in enumerate(x.clone().unbind(1)):
        now -= (kept[:, step : step + 2] * 0.3).sum(-1)
        kept[:, step + 2] = now
    return kept


def _uneven(x: Any) -> Any:
    x = x.clone()
    first, second, third = x.split([1, 3, 2], dim=1)
    second += first
    third.copy_(second[:, :2])
    return x, first


def _even(x: Any) -> Any:
    x = x.clone()
    for number, piece in enumerate(x.split(4, 1)):
        piece.add_(number)
    return x


def _chunks(x: Any) -> Any:
    x = x.clone()
    halves = x.t().chunk(4)
    halves[1].zero_()
    return x, halves[0]


def _places(x: Any) -> Any:
    x = x.clone()
    parts = x.tensor_split((1, 4), dim=1)
    parts[2].fill_(3)
    return x, parts[1]


def _views_of_pieces(x: Any) -> Any:
    x = x.clone()
    left, right = x.view(2, 3, 3, 2).unbind(-1)
    left.transpose(1, 2).add_(right)
    return x


CASES: Cases = {
    function.__name__.strip("_"): (function, lambda: (rows(3, 6),))
    for function in (
        *(_pieces_written, _whole_written, _recursive_filter, _uneven, _even, _chunks, _places),
        _views_of_pieces,
    )
}
CASES["views_of_pieces"] = (_views_of_pieces, lambda: (rows(4, 9),))


@pytest.mark.parametrize("name", CASES)
def test_pieces_are_written_as_pytorch_writes_them(name: str) -> None:
    require_agreement(*CASES[name])


@pytest.mark.parametrize(
    "cut", [lambda x: x.unbind(1), lambda x: x.split(1, 1), lambda x: x.chunk(x.shape[1], 1)]
)
def test_programs_grow_with_the_number_of_pieces_not_with_its_square(
    cut: Callable[[Any], Any],
) -> None:
    # Not before it is known whether PyTorch is here.
    from collage.importers.torch.written_pieces import with_pieces_alone

    def doubled(x: Any) -> Any:
        x = x.clone()
        for piece in cut(x):
            piece.mul_(2)
        return x

    few, many = (
        len(with_pieces_alone(program_of(doubled, rows(2, n))).run_decompositions({}).graph.nodes)
        for n in (8, 32)
    )
    assert many < 4.5 * few


def test_what_is_cut_and_never_written_is_left_as_it_is() -> None:
    from collage.importers.torch.written_pieces import with_pieces_alone

    def attended(x: Any) -> Any:
        kept = torch.zeros(3)
        kept[0] = 1
        query, key = x.unbind(0)
        return query * key + kept

    program = program_of(attended, rows(2, 3))
    assert with_pieces_alone(program) is program


def test_the_program_that_is_given_is_not_changed() -> None:
    from collage.importers.torch.written_pieces import with_pieces_alone

    program = program_of(_pieces_written, rows(2, 3))
    before = str(program.graph)
    assert str(with_pieces_alone(program).graph) != before
    assert str(program.graph) == before
