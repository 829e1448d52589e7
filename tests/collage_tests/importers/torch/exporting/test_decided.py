"""Modules whose integers decide what runs are compiled for those of their example inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collage
from collage.backends.contract.errors import InputError, ModelError
from collage.importers.torch import export_module

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


class Grids(torch.nn.Module):
    """Patches of several pictures side by side, as encoders for language models take them."""

    def forward(self, x: Any, grid: Any, scale: Any) -> Any:
        places = []
        for frames, rows, columns in grid:
            row = torch.arange(rows).unsqueeze(1).expand(-1, columns)
            column = torch.arange(columns).unsqueeze(0).expand(rows, -1)
            places.append(torch.stack([row.flatten(), column.flatten()], -1).repeat(frames, 1))
        ends = torch.repeat_interleave(grid[:, 1] * grid[:, 2], grid[:, 0]).cumsum(0)
        ends = torch.nn.functional.pad(ends, (1, 0))
        pieces = torch.split(x, (ends[1:] - ends[:-1]).tolist())
        seen = torch.cat([(one @ one.T).softmax(-1) @ one for one in pieces])
        return seen * scale + torch.cat(places).float().sum(-1, keepdim=True)


class InPlace(torch.nn.Module):
    """A view of known numbers, through which they change."""

    def forward(self, x: Any, lengths: Any) -> Any:
        longer = lengths.clone()
        last = longer[-1:]
        last += 2
        mask = torch.zeros(len(x), dtype=torch.bool)
        mask[: int(longer[-1])] = True
        kept = x[mask]
        if kept.shape[0] > 3:
            kept = kept * 2
        return torch.repeat_interleave(kept[:2], longer, dim=0)


class Overwritten(torch.nn.Module):
    """Known numbers into which unknown ones are written."""

    def forward(self, x: Any, lengths: Any) -> Any:
        counts = lengths + 0
        rows = counts[:1]
        counts[0] = x.argmax()
        return x.sum() + rows + torch.arange(int(lengths[1])).sum()


GRID = [[1, 2, 4], [2, 3, 2]]


def test_is_exported_for_the_numbers_that_decide() -> None:
    x, scale = torch.randn(20, 8), torch.tensor(3)
    found = export_module(Grids(), (x, torch.tensor(GRID), scale))
    assert [(one.input, one.values) for one in found.fixed] == [(1, (1, 2, 4, 2, 3, 2))]
    x, scale = torch.randn(20, 8), torch.tensor(5)
    wanted = Grids()(x, torch.tensor(GRID), scale)
    torch.testing.assert_close(found.program.module()(x, torch.tensor(GRID), scale), wanted)


@pytest.mark.parametrize("module", [InPlace(), Overwritten()])
def test_what_is_written_is_followed(module: Any) -> None:
    lengths = torch.tensor([1, 3])
    found = export_module(module, (torch.randn(9), lengths))
    x = torch.randn(9)
    torch.testing.assert_close(found.program.module()(x, lengths), module(x, lengths))
    assert lengths.tolist() == [1, 3]


def test_a_call_with_other_numbers_is_an_error(tmp_path: Path) -> None:
    x, grid, scale = torch.randn(20, 8), torch.tensor(GRID), torch.tensor(3)
    with pytest.warns(UserWarning, match="depends on the numbers in 'grid'"):
        result = collage.optimize(
            Grids(), ["llvm"], example_inputs=(x, grid, scale), time_budget_sec=0
        )
    bundle = collage.load(result.export(tmp_path / "grids.bundle"))
    given = np.random.default_rng(5).standard_normal((20, 8), "float32")
    wanted = Grids()(torch.from_numpy(given), grid, scale).numpy()
    np.testing.assert_allclose(bundle(given, grid.numpy(), scale), wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match=r"'grid' has 2 at \[1, 1\], where 3 was compiled in"):
        bundle(given, np.array([[1, 2, 4], [2, 2, 3]]), scale)
    assert bundle.random_inputs()[1].tolist() == GRID


class OfValues(torch.nn.Module):
    def forward(self, x: Any, lengths: Any) -> Any:
        return x.sum() if (x * lengths).sum() > 0 else x.mean()


def test_what_computed_numbers_decide_is_still_refused() -> None:
    with pytest.raises(ModelError, match="what runs depends on what tensors hold"):
        export_module(OfValues(), (torch.ones(4), torch.tensor([1, 1, 0, 0])))


class Resized(torch.nn.Module):
    """Of which the export comes to its end, with extents that nobody knows."""

    def forward(self, x: Any, sizes: Any) -> Any:
        rows, columns = sizes
        places = torch.nn.functional.interpolate(x, size=(rows, columns), mode="bilinear")
        return places.flatten(1).sum(1)


def test_numbers_that_are_extents_are_known_too() -> None:
    found = export_module(Resized(), (torch.randn(1, 3, 5, 5), torch.tensor([4, 7])))
    assert [(one.input, one.values) for one in found.fixed] == [(1, (4, 7))]
    x = torch.randn(1, 3, 5, 5)
    sizes = torch.tensor([4, 7])
    torch.testing.assert_close(found.program.module()(x, sizes), Resized()(x, sizes))


class Cut(torch.nn.Module):
    """As long as numbers say, which no extent is itself."""

    def forward(self, x: Any, lengths: Any) -> Any:
        parts = [row[:n].mean(0) for row, n in zip(x, lengths.tolist(), strict=True)]
        return torch.stack(parts) + x[0].narrow(0, int(lengths[0]), 2).sum()


class Alike(torch.nn.Module):
    """Rows that are padded only where they are not all as long: numbers as members of a set."""

    def forward(self, x: Any, lengths: Any) -> Any:
        known = lengths.tolist()
        starts = {number: place for place, number in enumerate(known)}
        rows = torch.stack([x[:, : max(known)].sum(1), x.mean(1) + starts[known[0]]])
        return rows if len(set(known)) > 1 else rows * 2


class Repeated(torch.nn.Module):
    """Frames of what is spoken, of which each takes as long as a number says."""

    def forward(self, x: Any, lengths: Any) -> Any:
        frames = torch.repeat_interleave(x * 2, lengths, dim=1)
        return frames.cumsum(1) + frames.shape[1]


@pytest.mark.parametrize(
    ("module", "lengths"),
    [
        (Cut(), (2, 4, 3)),
        (Repeated(), (2, 0, 1, 3, 1, 2)),
        (Alike(), (2, 4, 2)),
        (Alike(), (3, 3, 3)),
    ],
)
def test_numbers_that_extents_follow_from_are_known_too(
    module: Any, lengths: tuple[int, ...]
) -> None:
    given = torch.tensor(lengths)
    found = export_module(module, (torch.randn(3, 6, 4), given))
    assert [(one.input, one.values) for one in found.fixed] == [(1, lengths)]
    x = torch.randn(3, 6, 4)
    torch.testing.assert_close(found.program.module()(x, given), module(x, given))


def test_what_is_filled_like_an_input_does_not_depend_on_it() -> None:
    """One graph where nobody says which, as PyTorch Geometric's models make it up."""

    class Pooled(torch.nn.Module):
        def forward(self, kinds: Any, x: Any) -> Any:
            graph = torch.zeros_like(kinds)
            size = int(graph.max()) + 1
            return x.new_zeros(size, x.shape[1]).index_add(0, graph, x * kinds[:, None])

    kinds, x = torch.arange(4), torch.randn(4, 8)
    exported = export_module(Pooled(), (kinds, x))
    assert exported.fixed == ()
    other = torch.tensor([5, 1, 0, 2])
    assert torch.equal(exported.program.module()(other, x), Pooled()(other, x))
