"""Places that are read and written by index, mask or scatter, each beside PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from collage.importers import load_model
from tests.collage_tests.importers.torch.torch_functions import (
    Cases,
    places,
    program_of,
    require_agreement,
    rows,
)

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


def written(x: Any, index: Any, value: Any, *, accumulate: bool = False) -> Any:
    """``x[index] = value`` without changing x."""
    return torch.ops.aten.index_put(x, index, value, accumulate)


DIAGONALS = [
    ((5, 7), (0, 0, 1)),
    ((5, 7), (2, 0, 1)),
    ((5, 7), (-3, 0, 1)),
    ((5, 7), (9, 0, 1)),
    ((3, 5, 7), (-1, 2, 0)),
    ((3, 5, 7, 4), (1, -1, 1)),
    ((1, 4), (0,)),
]

CASES: Cases = {
    **{
        f"diagonal {given} of {shape}": (
            lambda x, given=given: torch.diagonal(x, *given) * 2,
            lambda shape=shape: (rows(*shape),),
        )
        for shape, given in DIAGONALS
    },
    "one piece": (
        lambda x: (x.split([3], 1)[0] * 2, x.chunk(1)[0] + 1, x[:1].split(5)[0]),
        lambda: (rows(4, 3),),
    ),
    **{
        f"truth values scattered by {how}, theirs too: {own}": (
            lambda x, i, v, how=how, own=own: (x > 0).scatter_reduce(
                0, i, v > 0, how, include_self=own
            ),
            lambda: (rows(9), places(9, 7), rows(7)),
        )
        for how in ("sum", "prod", "amax", "amin")
        for own in (True, False)
    },
    **{
        f"messages along edges, one index for all of a row, {how}, what was there: {own}": (
            lambda x, i, v, how=how, own=own: x.scatter_reduce(
                0, i[:, None].expand(-1, 6), v, how, include_self=own
            ),
            lambda: (rows(5, 6), places(5, 40), rows(40, 6)),
        )
        for how, own in (("sum", True), ("mean", True), ("mean", False), ("amax", False))
    },
    "truth values added up where indices tell": (
        lambda x, i, v: torch.ops.aten.index_put(x > 0, [i], v > 0, True),
        lambda: (rows(5), places(5, 4), rows(4)),
    ),
    "running extremes of truth values": (
        lambda x: (*torch.cummax(x > 0, 0), *torch.cummin(x > 0, 1)),
        lambda: (rows(5, 6),),
    ),
    "a mask of more axes than what it changes": (
        lambda x, m, s: x.masked_scatter(m > 0, s),
        lambda: (rows(4), rows(3, 4), rows(12)),
    ),
    "indexed once": (lambda x, i: x[:, i], lambda: (rows(3, 5, 2), places(5, 4, 2))),
    "indexed from the end": (lambda x, i: x[i - 2], lambda: (rows(5, 2), places(4, 6))),
    "indexed by pairs": (
        lambda x, i, j: x[i, j], lambda: (rows(4, 5, 2), places(4, 6), places(5, 6)),
    ),
    "pairs in the middle": (
        lambda x, i, j: x[:, i, j], lambda: (rows(2, 4, 5, 3), places(4, 6), places(5, 6)),
    ),
    "pairs apart": (
        lambda x, i, j: x[:, i, :, j], lambda: (rows(2, 4, 3, 5), places(4, 6), places(5, 6)),
    ),
    "a row and a column": (
        lambda x, i, j: x[:, :, i[:, None], j], lambda: (rows(2, 3, 4, 5), places(4, 6),
                                                         places(5, 7)),
    ),
    "rows written": (
        lambda x, i, v: written(x, [i], v), lambda: (rows(6, 3), torch.tensor([4, 0]), rows(2, 3)),
    ),
    "columns written": (
        lambda x, i, v: written(x, [None, i], v),
        lambda: (rows(2, 6, 3), torch.tensor([4, 0]), rows(2, 2, 3)),
    ),
    "one value written": (
        lambda x, i: written(x, [None, i], torch.tensor(7.0)),
        lambda: (rows(2, 6), torch.tensor([5, 1])),
    ),
    "added where written": (
        lambda x, i, v: written(x, [i], v, accumulate=True),
        lambda: (rows(6, 3), torch.tensor([4, 0, 4]), rows(3, 3)),
    ),
    "a mask written": (
        lambda x: written(x, [x > 0], torch.tensor(0.5)), lambda: (rows(4, 5),),
    ),
    "rows that a mask names": (
        lambda x, v: written(x, [x[:, 0] > 0], v), lambda: (rows(4, 5), rows(5)),
    ),
    "index_add": (
        lambda x, i, v: x.index_add(0, i, v), lambda: (rows(5, 2), places(5, 7), rows(7, 2)),
    ),
    "scatter_add": (
        lambda x, i, v: x.scatter_add(1, i, v), lambda: (rows(3, 4), places(4, 3, 6), rows(3, 8)),
    ),
    "scatter_reduce": (
        lambda x, i, v: x.scatter_reduce(0, i, v, "amax"),
        lambda: (rows(4, 3), places(4, 6, 3), rows(6, 3)),
    ),
    "masked_scatter": (
        lambda x, v: x.masked_scatter(x > 0, v), lambda: (rows(3, 4), rows(12)),
    ),
    "a table within a norm": (
        lambda i, x: torch.nn.functional.embedding(i, x.clone(), max_norm=1.5, norm_type=3.0),
        lambda: (places(6, 3, 4), rows(6, 5)),
    ),
    "indices of two types": (
        lambda x, i, j: (x[i, j], written(x, (i, j), x[0, 0])),
        lambda: (rows(3, 4), places(3, 5), places(4, 5).int()),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_operator_agrees_with_torch(case: str) -> None:
    require_agreement(*CASES[case])


def test_a_diagonal_is_read_where_it_lies() -> None:
    program = program_of(lambda x: torch.diagonal(x, 1, 1, 2) + 1, rows(4, 9, 8))
    text = load_model(program).mod.script()
    # One slice of what only lies otherwise: no matrix is copied before.
    assert text.count("strided_slice") == 1 and "einsum" not in text


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(
    ("shape", "before", "given"),
    [
        ((2, 4, 5), 0, (4, 5)),
        ((2, 4, 5), 0, (4, 1)),
        ((3, 2, 4), 1, (3, 4)),
        ((3, 2, 4), 1, (4,)),
        ((3, 2, 4), 1, (3, 1)),
        ((3, 2, 4, 5), 1, (3, 4, 5)),
    ],
)
def test_rows_are_written_one_by_one_where_a_mask_holds(
    shape: tuple[int, ...], before: int, given: tuple[int, ...], accumulate: bool
) -> None:
    """Which places they are is known as the network runs: how many, by what is written."""

    def write(x: Any, mask: Any, values: Any) -> Any:
        return written(x, [*[None] * before, mask], values, accumulate=accumulate)

    def draw() -> tuple[Any, ...]:
        chosen = torch.randperm(8).reshape(2, 4) < 4
        return rows(*shape), chosen, rows(*given)

    require_agreement(write, draw)


def test_writing_as_many_as_are_given_is_warned_of() -> None:
    program = program_of(
        lambda x, mask, values: written(x, [mask], values),
        *(rows(4), torch.tensor([True, False, True, False]), rows(2)),
    )
    with pytest.warns(UserWarning, match="writes 2 values where a mask holds"):
        load_model(program)
