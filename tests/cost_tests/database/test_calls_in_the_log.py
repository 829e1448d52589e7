"""The calls inside a whole model as the log holds them."""

from __future__ import annotations

import dataclasses
import json

import pytest

from collage.cost.base import Cost
from collage.cost.call_times import CallTime
from collage.cost.database.record import END_TO_END, Record, RecordKey

KEY = RecordKey(
    *(END_TO_END, "5f1c", "8x8:float32", '{"backend": "tvm"}', (), "g++", "0.22", "Some CPU"),
    driver="none",
    num_threads=4,
    config="{}",
)
CALLS = (CallTime("onednn_0", 0.1 + 0.2, 1e-6, 2e-6, 4096), CallTime("fused_add", 0.0))
RECORD = Record(KEY, Cost.of_samples([1e-3, 0.3]), "search", "tvm", calls=CALLS)


def test_every_call_comes_back_as_it_was() -> None:
    assert Record.from_json(RECORD.to_json()) == RECORD


def test_a_record_of_an_earlier_release_has_none() -> None:
    old = dataclasses.replace(RECORD, calls=())
    assert "calls" not in json.loads(old.to_json())
    assert Record.from_json(old.to_json()).calls == ()


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("median_sec", "soon", "'calls'"),
        ("median_sec", -1.0, "took no time"),
        ("symbol", None, "'calls'"),
        ("bytes", 0.5, "'calls'"),
    ],
)
def test_damaged_calls_are_an_error_that_says_so(field: str, value: object, reason: str) -> None:
    line = json.loads(RECORD.to_json())
    line["calls"][0][field] = value
    with pytest.raises(ValueError, match=reason):
        Record.from_json(json.dumps(line))


def test_calls_that_are_no_list_are_an_error() -> None:
    line = json.loads(RECORD.to_json())
    with pytest.raises(ValueError, match="'calls'"):
        Record.from_json(json.dumps({**line, "calls": "many"}))
