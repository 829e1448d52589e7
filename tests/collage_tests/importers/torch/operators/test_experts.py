"""Products of groups of rows, each with a matrix of its own, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.collage_tests.importers.torch.torch_functions import require_agreement, rows

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


def whole(*shape: int) -> Any:
    """Few whole numbers, whose products' sums half precision holds exactly."""
    return torch.randint(-3, 4, shape).float()


def ends(*places: int) -> Any:
    return torch.tensor(places, dtype=torch.int32)


def grouped(x: Any, y: Any, last: Any = None) -> Any:
    """PyTorch's own, which takes bfloat16 alone."""
    return torch._grouped_mm(x.bfloat16(), y.bfloat16(), offs=last).float()


CASES: dict[str, Callable[[], tuple[Any, ...]]] = {
    "rows": lambda: (whole(9, 16), whole(3, 16, 8), ends(2, 2, 9)),
    "fewer rows than groups": lambda: (whole(2, 16), whole(4, 16, 8), ends(0, 1, 1, 2)),
    "columns": lambda: (whole(3, 8, 16), whole(16, 8), ends(2, 2, 8)),
    "the summed axis": lambda: (whole(8, 16), whole(16, 8), ends(2, 2, 16)),
    "a batch": lambda: (whole(3, 9, 16), whole(3, 16, 8)),
}


@pytest.mark.parametrize("case", CASES)
def test_grouped_products(case: str) -> None:
    require_agreement(grouped, CASES[case])


@pytest.mark.parametrize(
    ("count", "last"), [(9, (2, 2, 7)), (9, (0, 0, 0)), (3, (0, 0, 1, 1, 3)), (3, (1, 1, 1, 1, 2))]
)
def test_the_groups_of_transformers(count: int, last: tuple[int, ...]) -> None:
    """Rows behind all groups are zero."""
    moe = pytest.importorskip("transformers.integrations.moe")
    if not hasattr(moe, "_grouped_mm_fallback"):
        pytest.skip("a version of transformers without grouped products of its own")
    require_agreement(
        torch.ops.transformers.grouped_mm_fallback,
        lambda: (rows(count, 4), rows(len(last), 4, 5), torch.tensor(last)),
    )
