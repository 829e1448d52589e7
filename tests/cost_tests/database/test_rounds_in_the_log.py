"""Rounds of a contest as the log holds them."""

from __future__ import annotations

import dataclasses
import json

import pytest

from collage.cost.base import Cost
from collage.cost.contest import Rounds
from collage.cost.database.record import END_TO_END, Record, RecordKey

KEY = RecordKey(
    *(END_TO_END, "5f1c", "8x8:float32", '{"backend": "tvm"}', (), "g++", "0.22", "Some CPU"),
    driver="none",
    num_threads=4,
    config="{}",
)
ROUNDS = Rounds("c0ffee", (1e-3, None, 0.1 + 0.2), (0, 1), (1,), (0.5, 0.25, 0.0))
RECORD = Record(KEY, Cost.of_samples([1e-3, 0.3]), "search", "tvm", rounds=ROUNDS)


def test_every_round_comes_back_as_it_was() -> None:
    assert Record.from_json(RECORD.to_json()) == RECORD
    assert Record.from_json(RECORD.to_json()).rounds == ROUNDS


def test_a_record_of_an_earlier_release_has_none() -> None:
    old = dataclasses.replace(RECORD, rounds=None)
    assert "rounds" not in json.loads(old.to_json())
    assert Record.from_json(old.to_json()).rounds is None


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("seconds", ["soon"], "'rounds'"),
        ("seconds", [0.0, 1.0, 1.0], "took no time"),
        ("seconds", [-1.0, 1.0, 1.0], "took no time"),
        ("disturbed", [7], "were none"),
        ("contest", None, "'rounds'"),
    ],
)
def test_damaged_rounds_are_an_error_that_says_so(field: str, value: object, reason: str) -> None:
    line = json.loads(RECORD.to_json())
    line["rounds"][field] = value
    with pytest.raises(ValueError, match=reason):
        Record.from_json(json.dumps(line))
