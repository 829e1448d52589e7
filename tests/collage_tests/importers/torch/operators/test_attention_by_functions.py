"""``flex_attention``: scores and masks that are functions of places."""

from __future__ import annotations

from typing import Any

import pytest

from collage.importers import load_model
from tests.collage_tests.importers.torch.torch_functions import (
    require_agreement,
    rows,
)

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
    pytest.mark.filterwarnings("ignore:return_lse is deprecated"),
]
torch = pytest.importorskip("torch", exc_type=ImportError)
flex = pytest.importorskip("torch.nn.attention.flex_attention", exc_type=ImportError)


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> None:
    """PyTorch's own cache of calls mixes up functions of different closures."""
    torch._dynamo.reset()


def test_functions_of_scores_agree_with_torch() -> None:
    """Grouped heads, a table of biases by distance, two sequences in one, a row that sees nothing,
    and the logarithms of sums."""
    kinds = torch.tensor([0, 0, 1, 1, 2])

    def attend(q: Any, k: Any, table: Any) -> Any:
        def score(score: Any, row: Any, head: Any, at: Any, other: Any) -> Any:
            seen = (kinds[at] == kinds[other]) & (at >= other) & (at < 4)
            return torch.where(seen, score * 0.5 + table[head, at - other + 4], -float("inf"))

        return flex.flex_attention(
            *(q, k, k), score_mod=score, scale=0.3, enable_gqa=True, return_lse=True
        )

    require_agreement(attend, lambda: (rows(1, 4, 5, 8), rows(1, 2, 5, 8), rows(4, 9)))


def test_a_mask_alone_leaves_attention_one_operator() -> None:
    class Masked(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.mask = flex.create_block_mask(
                lambda b, h, i, j: i >= j, None, None, 8, 8, device="cpu"
            )

        def forward(self, q: Any) -> Any:
            return flex.flex_attention(q, q, q, block_mask=self.mask)

    program = torch.export.export(Masked(), (rows(1, 2, 8, 4),))
    assert str(load_model(program).mod).count("nn.attention") == 1
