"""Attention of exported programs: heads, axes and masks."""

from __future__ import annotations

from typing import Any

import pytest

from collage.importers import load_model
from tests.collage_tests.importers.torch.torch_functions import (
    Cases,
    program_of,
    require_agreement,
    rows,
)

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
F = torch.nn.functional


CASES: Cases = {
    "attention of grouped heads": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        lambda: (rows(1, 4, 6, 8), rows(1, 2, 6, 8), rows(1, 2, 6, 8)),
    ),
    "attention of five axes": (
        lambda q, m: F.scaled_dot_product_attention(q, q, q, m > 0),
        lambda: (rows(2, 3, 4, 6, 8), torch.ones(6, 6).tril()),
    ),
    "attention of three axes": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k),
        lambda: (rows(3, 6, 8), rows(3, 5, 8)),
    ),
    "one query for each of several sequences": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k),
        lambda: (rows(1, 2, 3, 8), rows(7, 2, 5, 8)),
    ),
    "keys that all heads share": (
        lambda q, k, m: F.scaled_dot_product_attention(q, k, k, m > 0),
        lambda: (rows(2, 3, 6, 8), rows(2, 1, 5, 8), torch.ones(6, 5).tril()),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_operator_agrees_with_torch(case: str) -> None:
    require_agreement(*CASES[case])


@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (2, 5, 4), (5, 4)])
def test_rows_of_attention_that_see_nothing_are_zero(shape: tuple[int, ...]) -> None:
    """As where a batch is padded on the left: they were no numbers, and soon all others neither."""

    def attend(x: Any, mask: Any) -> Any:
        seen = mask.unsqueeze(-2) & torch.ones(5, 5, dtype=torch.bool).tril()
        seen = seen.unsqueeze(-3) if x.dim() == 4 else seen
        return F.scaled_dot_product_attention(x, x, x, attn_mask=seen)

    pads = torch.tensor([[False, False, True, True, True], [True] * 5])
    require_agreement(attend, lambda: (rows(*shape), pads if len(shape) > 2 else pads[0]))


@pytest.mark.parametrize("wide", [False, True])
def test_masks_of_padding_alone_cost_nothing_per_row(wide: bool) -> None:
    def attend(x: Any, mask: Any) -> Any:
        seen = mask[:, None, None]
        always = torch.arange(5)[:, None] >= 0
        seen = (seen & always).expand(2, 1, 5, 5) if wide else seen
        return F.scaled_dot_product_attention(x, x, x, attn_mask=seen)

    mod = load_model(program_of(attend, rows(2, 3, 5, 4), torch.ones(2, 5, dtype=torch.bool))).mod
    assert str(mod).count("R.where(") == 1
