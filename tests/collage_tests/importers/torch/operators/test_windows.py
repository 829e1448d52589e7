"""Windows and borders of exported programs, each beside PyTorch on fresh random inputs."""

from __future__ import annotations

import pytest

from tests.collage_tests.importers.torch.torch_functions import Cases, require_agreement, rows

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
F = torch.nn.functional

CASES: Cases = {
    **{
        f"volumes sampled: {mode}, {beyond}, {corners}": (
            lambda x, g, mode=mode, beyond=beyond, corners=corners: F.grid_sample(
                x, g, mode, beyond, corners
            ),
            lambda: (rows(2, 3, 4, 5, 6), rows(2, 2, 3, 4, 3)),
        )
        for mode in ("bilinear", "nearest")
        for beyond in ("zeros", "border", "reflection")
        for corners in (False, True)
    },
    **{
        f"padded {mode}": (
            lambda x, mode=mode: F.pad(x, (1, 2, 2, 1), mode=mode),
            lambda: (rows(2, 3, 5, 6),),
        )
        for mode in ("reflect", "replicate", "circular")
    },
    **{
        f"padded {mode} along {rank} axes": (
            lambda x, mode=mode, rank=rank: F.pad(x, (2, 1) * rank, mode=mode),
            lambda rank=rank: (rows(2, 3, *(4, 5, 6)[:rank]),),
        )
        for mode in ("reflect", "replicate")
        for rank in (1, 3)
    },
    "padded by reflection and cut off": (
        lambda x: F.pad(x, (2, -1, 1, 0), mode="reflect"),
        lambda: (rows(2, 3, 5, 6),),
    ),
    "padded and cut off": (lambda x: F.pad(x, (-1, 2, 3, -2), value=2.5), lambda: (rows(2, 5, 6),)),
    "folded": (
        lambda x: F.fold(x, (8, 6), (3, 2), padding=1, stride=2),
        lambda: (rows(1, 12, 16),),
    ),
    "unfolded": (lambda x: F.unfold(x, 3, padding=1, stride=2), lambda: (rows(1, 2, 8, 6),)),
    "windows": (lambda x: x.unfold(2, 4, 2).unfold(3, 3, 1), lambda: (rows(1, 2, 9, 7),)),
    "a walk over memory": (lambda x: x.as_strided((3, 2), (2, 5), 1), lambda: (rows(4, 4),)),
    "a walk over memory, other axes first": (
        lambda x: x.transpose(0, 2).add(1.0).as_strided((3, 2, 2), (4, 2, 1), 1),
        lambda: (rows(3, 1, 5),),
    ),
    "chunks that overlap, of a view": (
        lambda x: (x * 2).view(4, 1, 6).transpose(0, 1).as_strided((1, 3, 2, 6), (6, 6, 6, 1)),
        lambda: (rows(4, 6),),
    ),
    **{
        f"sampled on a grid, {how}, {beyond}, corners aligned: {corners}": (
            lambda x, g, how=how, beyond=beyond, corners=corners: F.grid_sample(
                x, g, how, beyond, align_corners=corners
            ),
            lambda: (rows(2, 3, 5, 6), torch.rand(2, 4, 3, 2) * 2.4 - 1.2),
        )
        for how in ("bilinear", "nearest", "bicubic")
        for beyond in ("zeros", "border", "reflection")
        for corners in (False, True)
    },
    "an affine grid": (
        lambda t: F.affine_grid(t, [1, 2, 4, 5], align_corners=False),
        lambda: (rows(1, 2, 3),),
    ),
    "adaptive maxima": (
        lambda x: (F.adaptive_max_pool2d(x, 1), F.adaptive_max_pool2d(x, (4, 5))),
        lambda: (rows(2, 3, 7, 9),),
    ),
    "places of maxima": (
        lambda x: F.max_pool2d(x.relu(), (3, 2), 2, (1, 0), (2, 1), True, return_indices=True),
        lambda: (rows(2, 3, 7, 9),),
    ),
    "places of maxima of volumes": (
        lambda x: F.max_pool3d(x, 2, 2, ceil_mode=True, return_indices=True),
        lambda: (rows(3, 7, 5, 4),),
    ),
    "maxima with no strides": (
        lambda x: (
            F.max_pool3d(x, 2, ceil_mode=True),
            F.max_pool3d(x[0], (2, 1, 3), dilation=(1, 2, 1), padding=(1, 0, 1)),
            F.max_pool2d(x[0], 3, dilation=2, ceil_mode=True),
            F.max_pool2d(x[:, 0], 2, padding=1),
        ),
        lambda: (rows(2, 3, 5, 7, 9),),
    ),
    "places of adaptive maxima": (
        lambda x: F.adaptive_max_pool2d(x, (3, 2), return_indices=True),
        lambda: (rows(1, 3, 7, 8),),
    ),
    "unpooled": (
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        lambda: (rows(1, 3, 6, 8),),
    ),
    "sums over a divisor": (
        lambda x: F.avg_pool2d(x, (3, 2), 2, 1, True, divisor_override=5),
        lambda: (rows(2, 8, 9),),
    ),
    "sums of volumes over a divisor": (
        lambda x: F.avg_pool3d(x, 3, 2, 1, divisor_override=5),
        lambda: (rows(1, 2, 8, 9, 6),),
    ),
    "adaptive maxima of rows": (lambda x: F.adaptive_max_pool1d(x, 3), lambda: (rows(2, 3, 7),)),
    "adaptive maxima of volumes": (
        lambda x: F.adaptive_max_pool3d(x, (3, 2, 4)),
        lambda: (rows(1, 2, 4, 5, 7),),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_operator_agrees_with_torch(case: str) -> None:
    require_agreement(*CASES[case])
