"""Rows that data choose, the whole way: a bundle gives what onnxruntime gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import collage
from collage.backends.contract.errors import UserError
from collage.bundle.manifest import ROWS_SCHEMA_VERSION, SCHEMA_VERSION, read_manifest
from tests.collage_tests.importers.onnx.onnx_models import by_onnxruntime, require_same
from tests.collage_tests.pipeline.flat_costs import FlatCosts

_DETECTOR = """<ir_version: 9, opset_import: ["" : 17]>
    detector (float[1,4,8,8] x, float[7,4,3,3] w)
        => (int64[n,3] rows, float[n,4] boxes, float[1,3,64] s)
    <int64[3] flat = {1, 7, 64}, int64[2] parts = {4, 3}, int64[1] limit = {6},
     float[1] overlap = {0.5}, float[1] least = {0.6}, int64 two = {2}, int64[1] zero = {0}>
    {
        f = Conv <pads = [1, 1, 1, 1]> (x, w)
        r = Reshape(f, flat)
        b0, s0 = Split <axis = 1> (r, parts)
        b = Transpose <perm = [0, 2, 1]> (b0)
        s = Sigmoid(s0)
        rows = NonMaxSuppression(b, s, limit, overlap, least)
        place = Gather <axis = 1> (rows, two)
        all = Squeeze(b, zero)
        boxes = Gather <axis = 0> (all, place)
    }
    """


def _are_apart(scores: np.ndarray) -> bool:
    """Whether none are closer than another order of sums can move them, and change places then."""
    gaps = np.diff(np.sort(scores, axis=None))
    return bool(np.all((gaps == 0) | (gaps > 2e-6)))


def test_a_detector_answers_as_onnxruntime_does(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(_DETECTOR)
    result = collage.optimize(model, ["llvm", "onednn"], cost_model=FlatCosts("onednn"))
    folder = result.export(tmp_path / "detector.bundle")
    assert read_manifest(folder).schema_version == ROWS_SCHEMA_VERSION
    bundle = collage.load(folder)
    assert [(x.name, x.shape) for x in bundle.get_outputs()] == [
        ("rows", [18, 3]),
        ("boxes", [18, 4]),
        ("s", [1, 3, 64]),
    ]
    numbers = set()
    for scale in (0.0, 0.1, 0.3, 1.0):
        rng = np.random.default_rng()
        while True:
            x = rng.standard_normal((1, 4, 8, 8)).astype("float32")
            given = {"x": x, "w": (scale * rng.standard_normal((7, 4, 3, 3))).astype("float32")}
            wanted = by_onnxruntime(model, given)
            if all(_are_apart(scores) for scores in wanted[2][0]):
                break
        found = bundle.run(None, given)
        require_same(found, wanted)
        require_same(bundle(**given), found)
        numbers.add(len(found[0]))
    assert 0 in numbers and len(numbers) > 1


def test_other_bundles_are_of_the_version_that_they_were(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        net (float[1, 8] x) => (float[1, 8] y) { y = Relu(x) }"""
    model = onnx.parser.parse_model(text)
    result = collage.optimize(model, ["llvm"], cost_model=FlatCosts("onednn"))
    assert read_manifest(result.export(tmp_path / "net.bundle")).schema_version == SCHEMA_VERSION


def test_what_mixes_rows_is_refused_before_anything_is_built() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        net (float[8] x) => (int64[1] y) {
            p = NonZero(x)
            y = ReduceMax <axes = [0, 1], keepdims = 0> (p)
        }"""
    with pytest.raises(UserError, match=r"NonZero \(p\) chooses .* max mixes slices"):
        collage.optimize(onnx.parser.parse_model(text), ["llvm"])
