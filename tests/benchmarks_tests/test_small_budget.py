"""Networks that are drawn at random, and one row of the table of answers within seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)

from benchmarks import small_budget  # noqa: E402
from benchmarks.networks.drawn_networks import FAMILIES, drawn  # noqa: E402


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_says_which_network_it_is(family: str) -> None:
    (one, same), other = (drawn(family, 5) for _ in range(2)), drawn(family, 6)
    inputs = one.example_inputs[0]
    x, y = one.module()(*inputs), same.module()(*inputs)
    assert torch.equal(x, y) and torch.isfinite(x).all() and float(x.std()) > 0
    shapes = [{k: v.shape for k, v in net.state_dict.items()} for net in (one, other)]
    different = any(
        not torch.equal(v, other.state_dict[k])
        for k, v in one.state_dict.items()
        if k in other.state_dict and other.state_dict[k].shape == v.shape
    )
    assert shapes[0] != shapes[1] or different


def test_a_search_in_another_process_gives_a_row(tmp_path: Path) -> None:
    model = tmp_path / "model.pt2"
    torch.export.save(drawn("mlp", 3), model)
    here = Path(small_budget.__file__).parents[1]
    answers = [small_budget.search(model, here, "estimate", "estimate now", tmp_path)]
    (row,) = small_budget.lines_of("mlp 3", answers)
    assert row.startswith("| mlp 3 | estimate now | ") and row in small_budget.page([row])
