"""torchvision's operators on regions of pictures, beside torchvision's own kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.normalize import normalize
from collage.pipeline.shapes.rows import rows_of
from tests.collage_tests.importers.onnx.onnx_models import cut_rows
from tests.collage_tests.importers.torch.torch_functions import (
    Cases,
    program_of,
    require_agreement,
    rows,
)

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
# Its kernels are missing where its wheel and PyTorch's are not of one make.
ops = pytest.importorskip("torchvision.ops", exc_type=(ImportError, RuntimeError))


def _regions(pictures: int, count: int, size: float) -> Any:
    corners = torch.rand(count, 2, 2) * size * 1.2 - 0.1 * size
    low, high = corners.amin(1), corners.amax(1)
    which = torch.randint(0, pictures, (count, 1)).float()
    return torch.cat([which, low, high], 1)


def _boxes(count: int) -> Any:
    low = torch.rand(count, 2) * 4
    return torch.cat([low, low + torch.rand(count, 2) * 3], 1)


CASES: Cases = {
    **{
        f"averages of {ratio} samples, aligned: {aligned}": (
            lambda x, r, ratio=ratio, aligned=aligned: ops.roi_align(
                x, r, (3, 4), 0.5, ratio, aligned
            ),
            lambda: (rows(2, 3, 16, 20), _regions(2, 7, 30.0)),
        )
        for ratio in (-1, 2)
        for aligned in (False, True)
    },
    "maxima of regions": (
        lambda x, r: ops.roi_pool(x, r, (3, 2), 0.5),
        lambda: (rows(2, 3, 16, 20), _regions(2, 7, 30.0)),
    ),
}

CHOOSING: Cases = {
    **{
        f"boxes that none better overlaps by {share}": (
            lambda b, s, share=share: ops.nms(b, s, share),
            lambda: (_boxes(40), torch.rand(40)),
        )
        for share in (0.0, 0.3, 0.7)
    },
    "boxes of several classes": (
        lambda b, s, c: b[ops.batched_nms(b, s, c, 0.4)],
        lambda: (_boxes(40), torch.rand(40), torch.randint(0, 3, (40,))),
    ),
    "boxes of one place, and none at all": (
        lambda b, s: ops.nms(torch.cat([b, b, b * 0]), torch.cat([s, s, s]), 0.5),
        lambda: (_boxes(5), torch.rand(5)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_regions_agree_with_torchvision(case: str) -> None:
    require_agreement(*CASES[case])


@pytest.mark.parametrize("case", CHOOSING)
def test_boxes_that_are_kept_are_those_of_torchvision(case: str) -> None:
    torch.manual_seed(7)
    function, draw = CHOOSING[case]
    inputs = draw()
    loaded = load_model(program_of(function, *inputs))
    whole = evaluate(normalize(loaded.mod), [x.numpy() for x in inputs])
    (found,) = cut_rows(rows_of(loaded), whole)
    np.testing.assert_array_equal(found, function(*inputs).numpy())
