"""The ``cutlass`` target: attributes, architectures, and what it says of a missing package."""

from __future__ import annotations

import importlib.util

import pytest

from collage.backends.contract.errors import BackendUnavailableError, TargetError
from collage.backends.contract.registry import get_backend
from collage.backends.cutlass import library
from collage.backends.cutlass.options import CutlassOptions


def test_unknown_attribute_lists_the_valid_ones() -> None:
    with pytest.raises(TargetError, match="no attribute 'tile'") as caught:
        get_backend("cutlass").parse_options({"tile": 128})
    for name in ("sm", "use_3xtf32", "split_k_slices", "profile_all_alignments", "threads"):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"sm": 70}, "attribute 'sm' of target 'cutlass' must be"),
        ({"use_fast_math": 1}, "attribute 'use_fast_math' of target 'cutlass' must be bool"),
        ({"threads": -1}, "threads must be 0 or more, not -1"),
        ({"split_k_slices": "many"}, "split_k_slices must be 'auto', a number from 1 to 64"),
        ({"split_k_slices": 0}, "split_k_slices must be"),
        ({"split_k_slices": "2,,4"}, "split_k_slices must be"),
    ],
)
def test_ill_attributes_are_refused(attributes: dict[str, object], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        get_backend("cutlass").parse_options(attributes)


@pytest.mark.parametrize(
    ("given", "counts"), [("auto", None), (1, (1,)), (8, (8,)), ("1, 4,2,4", (1, 4, 2))]
)
def test_slice_counts(given: int | str, counts: tuple[int, ...] | None) -> None:
    assert CutlassOptions(split_k_slices=given).split_k_candidates() == counts


@pytest.mark.parametrize(
    ("sm", "arch", "generation"),
    [
        (None, "sm_90a", 90),
        (None, "sm_90", 80),  # without the "a" there are no Hopper instructions
        (None, "sm_80", 80),
        (80, "sm_90a", 80),
        (90, "sm_86", 80),  # asked for more than the device has
    ],
)
def test_kernel_generation_follows_the_device(sm: int | None, arch: str, generation: int) -> None:
    assert CutlassOptions(sm=sm).generation(arch) == generation  # type: ignore[arg-type]


def test_absent_cutlass_is_reported_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for cached in (library.cutlass_folder, library.cutlass_version):
        cached.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BackendUnavailableError, match=r"nvidia-cutlass.*pip install"):
        library.cutlass_folder()
    found = get_backend("cutlass").probe()
    assert not found.usable
    assert "nvidia-cutlass" in found.reason
    assert found.remedy.startswith("pip install")
