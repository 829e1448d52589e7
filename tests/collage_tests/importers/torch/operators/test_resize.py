"""Interpolations of exported programs, each beside PyTorch on fresh random inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from collage.backends.contract.errors import ModelError
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
F = torch.nn.functional

CASES: Cases = {}


def resized(rank: int, *, corners: bool) -> Callable[..., Any]:
    """All interpolations over so many axes, in one program."""
    plain = {1: "linear", 2: "bilinear", 3: "trilinear"}[rank]
    if corners:
        modes = [plain, *(["bicubic"] if rank == 2 else [])]
    else:
        modes = ["nearest", "nearest-exact", plain, *(["bicubic"] if rank == 2 else [])]
    sizes = ({"size": (11, 3, 10)[:rank]}, {"scale_factor": 2.0}, {"scale_factor": 1.7})

    def function(x: Any) -> Any:
        return tuple(
            F.interpolate(
                x, mode=m, align_corners=None if m.startswith("nearest") else corners, **size
            )
            for m in modes
            for size in sizes
        )

    return function


for rank in (1, 2, 3):
    for corners in (False, True):
        CASES[f"resized along {rank} axes, corners aligned: {corners}"] = (
            resized(rank, corners=corners),
            lambda s=(2, 3, 7, 6, 5)[: rank + 2]: (rows(*s),),
        )
CASES["one row resized, corners aligned"] = (
    lambda x: F.interpolate(x, size=9, mode="linear", align_corners=True), lambda: (rows(1, 1, 5),),
)  # fmt: skip

CASES["resized to a single place, corners aligned"] = (
    lambda x, y: (
        *(
            F.interpolate(x, size=size, mode=mode, align_corners=True)
            for mode in ("bilinear", "bicubic")
            for size in ((1, 1), (1, 4), (3, 1))
        ),
        F.interpolate(x[..., 0], size=1, mode="linear", align_corners=True),
        F.interpolate(x[:, :, :1], size=(1, 8), mode="bilinear", align_corners=True),
        F.interpolate(y, size=(1, 3, 1), mode="trilinear", align_corners=True),
        F.interpolate(y, size=(2, 1, 1), mode="trilinear", align_corners=True),
    ),
    lambda: (rows(1, 2, 7, 5), rows(1, 2, 4, 5, 7)),
)

for mode in ("bilinear", "bicubic"):
    CASES[f"{mode}, antialiased"] = (
        lambda x, mode=mode: tuple(
            F.interpolate(x, mode=mode, antialias=True, **size)
            for size in (
                {"size": (3, 2)},
                {"size": (13, 20), "align_corners": True},
                {"scale_factor": (0.3, 1.7)},
                {"scale_factor": 0.7, "recompute_scale_factor": True},
            )
        ),
        lambda: (rows(2, 3, 10, 12),),
    )


@pytest.mark.parametrize("case", CASES)
def test_interpolation_agrees_with_torch(case: str) -> None:
    require_agreement(*CASES[case])


@pytest.mark.parametrize("antialias", [False, True])
def test_interpolations_of_bytes_are_refused(antialias: bool) -> None:
    """PyTorch's are not those of numbers rounded; they came out cut off."""

    def function(x: Any) -> Any:
        return F.interpolate(x, (3, 5), mode="bilinear", antialias=antialias)

    with pytest.raises(ModelError, match="an interpolation of uint8; convert it to float before"):
        load_model(program_of(function, places(255, 1, 3, 8, 8).byte()))


def test_interpolations_stay_whole() -> None:
    program = program_of(
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), rows(1, 2, 4, 4)
    )
    assert "image.resize2d" in load_model(program).mod.script()
