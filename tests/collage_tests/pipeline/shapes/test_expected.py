"""Buckets chosen by what a call is expected to take."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

import collage
from collage.backends.contract.errors import InputError, ShapeError
from collage.pipeline.shapes.buckets import buckets_of
from collage.pipeline.shapes.expected import call_times, chosen, measured_extents

SHARES = st.dictionaries(st.integers(1, 40), st.floats(0.01, 10), min_size=1, max_size=8)


def _expected_sec(
    buckets: tuple[int, ...], shares: dict[int, float], call_sec: dict[int, float]
) -> float:
    return sum(
        share * call_sec[next(bucket for bucket in buckets if bucket >= extent)]
        for extent, share in shares.items()
    )


@given(SHARES, st.integers(1, 5), st.data())
def test_no_choice_of_as_many_is_better(
    shares: dict[int, float], most: int, data: st.DataObject
) -> None:
    extents = sorted(shares)
    steps = data.draw(st.lists(st.floats(0, 5), min_size=len(extents), max_size=len(extents)))
    call_sec = dict(zip(extents, itertools.accumulate(steps), strict=True))
    found, found_sec = chosen(shares, call_sec, most)
    assert found[-1] == extents[-1] and len(found) <= most and set(found) <= set(extents)
    assert found_sec == pytest.approx(_expected_sec(found, shares, call_sec))
    for count in range(min(most, len(extents))):
        for some in itertools.combinations(extents[:-1], count):
            other_sec = _expected_sec((*some, extents[-1]), shares, call_sec)
            assert found_sec <= other_sec + 1e-9 * (1 + other_sec)


@given(st.sets(st.integers(1, 5000), min_size=1, max_size=60))
def test_the_ends_are_measured(extents: set[int]) -> None:
    ascending = sorted(extents)
    places = measured_extents(ascending)
    assert {ascending[0], ascending[-1]} <= set(places) <= extents
    assert places == sorted(places) and len(places) <= 5


def test_more_never_takes_less() -> None:
    assert call_times({1: 2.0, 4: 1.0, 8: 5.0}, [1, 2, 4, 6, 8]) == {
        1: 2.0,
        2: 2.0,
        4: 2.0,
        6: 3.5,
        8: 5.0,
    }


def test_how_often_extents_come_is_read_alike_from_both_spellings() -> None:
    text = buckets_of({"x": ["1*2|8*.5|3*1.5", 4]})
    mapped = buckets_of({"x": [{8: 0.5, 1: 2, 3: 1.5}, 4]})
    assert text == mapped
    assert text.varying == ((1, 3, 8),) and text.shares == {0: {1: 0.5, 3: 0.375, 8: 0.125}}
    assert text.narrowed(0, (3, 8)).between(0) == [1]
    both = buckets_of({"x": [{1: 1, 2: 1}, 4], "y": [{2: 1, 1: 1}, "1|2"]})
    assert len(both.buckets) == 4 and list(both.shares) == [0]


def test_one_extent_may_be_0_however_it_is_written() -> None:
    for written in (0, "0", " 0 "):
        assert [b.shapes for b in buckets_of({"x": [written, 4]}).buckets] == [{"x": (0, 4)}]
    for several in ("0:4", "0|4", [0, 4]):
        with pytest.raises(ShapeError, match="extents begin at 1"):
            buckets_of({"x": [several, 4]})


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ([{1: 0, 2: 1}], "1 comes with weight 0; write a number above 0"),
        ([{1: float("nan")}], "weight nan"),
        ([{0: 1, 2: 1}], "extents begin at 1"),
        ([{}], "is no extent"),
        (["1*|2*1"], "is no extent"),
        ([{1: 1, 2: 2}, {1: 2, 2: 1}], "of one dimension at the most"),
    ],
)
def test_what_is_no_distribution_is_refused(shape: list[object], reason: str) -> None:
    with pytest.raises(ShapeError, match=reason):
        buckets_of({"x": shape})  # type: ignore[dict-item]


def _net(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        net (float[n, 8] x, float[8, 8] w) => (float[n, 8] y) {{ {body} }}"""
    )


def test_a_model_has_the_buckets_that_it_was_told_to_choose(tmp_path: Path) -> None:
    shares = {1: 0.5, 2: 0.1, 30: 0.1, 31: 0.1, 64: 0.2}
    net, log = _net("z = MatMul(x, w)  y = Tanh(z)"), tmp_path / "log.jsonl"
    shapes = {"x": [shares, 8]}
    result = collage.optimize(net, ["llvm"], shapes=shapes, most_buckets=2, log=log)
    extents = [variant.inputs[0].shape[0] for variant in result.entries[0].variants]
    assert len(extents) == 2 and extents[-1] == 64
    (remark,) = [text for text in result.report.remarks if "extents: a call is expected" in text]
    assert remark.startswith(f"buckets {extents[0]}, 64 of 5 extents") and "padded" in remark
    bundle = collage.load(result.export(tmp_path / "net.bundle"))
    rng = np.random.default_rng()
    for extent in shares:
        x, w = (rng.standard_normal((n, 8)).astype("float32") for n in (extent, 8))
        np.testing.assert_allclose(bundle(x, w), np.tanh(x @ w), rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="axis 0"):
        bundle(np.zeros((3, 8), "float32"), w)
    again = collage.optimize(net, ["llvm"], shapes=shapes, most_buckets=2, log=log, replay=True)
    assert again.module.script() == result.module.script()


def test_where_nothing_may_be_padded_each_extent_has_a_bucket() -> None:
    net = _net("z = MatMul(x, w)  y = Softmax<axis = 0>(z)")
    result = collage.optimize(
        net, ["llvm"], shapes={"x": [{1: 1, 2: 1, 4: 1}, 8]}, most_buckets=2, strategy="greedy"
    )
    assert len(result.entries[0].variants) == 3
    (remark,) = [text for text in result.report.remarks if "a bucket of its own" in text]
    assert remark.startswith("each of the 3 extents has a bucket of its own: ")


def test_one_bucket_is_too_few() -> None:
    with pytest.raises(ShapeError, match="most_buckets is 1, and has to be 2 or more"):
        collage.optimize(_net("y = MatMul(x, w)"), ["llvm"], most_buckets=1)
