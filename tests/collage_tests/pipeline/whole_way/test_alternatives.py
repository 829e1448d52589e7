"""What a choice was compared with can be had as well."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import collage
from tests.collage_tests.conftest import Optimized


def test_alternatives_compute_the_same_otherwise(optimized: Optimized, tmp_path: Path) -> None:
    result = optimized.result
    assert {"search", "single:tvm", "single:onednn"} <= set(result.alternatives)
    chosen = collage.load(optimized.bundle)
    inputs = chosen.random_inputs(3)
    other = result.alternative("single:tvm")
    assert "Codegen" not in other.module.script(show_meta=False)
    alone = collage.load(other.export(tmp_path / "alone"))
    np.testing.assert_allclose(alone(*inputs), chosen(*inputs), rtol=1e-3, atol=1e-4)


def test_unknown_alternative_is_an_error(optimized: Optimized) -> None:
    with pytest.raises(KeyError, match="nonsense"):
        optimized.result.alternative("nonsense")
