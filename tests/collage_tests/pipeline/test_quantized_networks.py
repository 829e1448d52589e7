"""Quantized convolutional networks, from onnxruntime's files to a bundle that is loaded again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

import collage
from benchmarks.networks.models import random_inputs
from benchmarks.networks.quantized import Quantized
from benchmarks.networks.tiny import tiny_mobilenet
from tests.collage_tests.normalize.test_models import by_onnxruntime


@pytest.mark.parametrize("form", ["static", "operators"])
def test_it_stays_in_bytes_and_comes_out_right(form: str, tmp_path: Path) -> None:
    network = Quantized(partial(tiny_mobilenet, image=32), form, folded=True)
    model = network.model("network")
    result = collage.optimize(model, ["llvm", "onednn"], strategy="single:onednn")
    result.export(tmp_path / "bundle")
    loaded = collage.load(tmp_path / "bundle")
    for seed in np.random.default_rng().integers(1000, size=3):
        inputs = random_inputs(model, int(seed))
        (wanted,) = by_onnxruntime(model, inputs)
        (found,) = loaded.run(None, inputs)
        # What lies by a tie may be a step apart, and the result is rounded to 256.
        assert np.abs(found - wanted).max() <= 2 * np.ptp(wanted) / 100
