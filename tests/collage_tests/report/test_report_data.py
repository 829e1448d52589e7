"""Report data: what is written is what is read, and damage is named."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest

from collage.backends.contract.errors import BundleError
from collage.report import Alternative, Report, SearchStats, shape_text
from collage.report.units import format_sec, format_time
from tests.collage_tests.report.report_data import resnet_report


def test_round_trip_keeps_everything() -> None:
    report = resnet_report()
    assert Report.from_json(report.to_json()) == report


def test_document_is_plain_json_with_units_in_names() -> None:
    value = json.loads(resnet_report().to_json())
    assert value["schema_version"] == 1
    assert {f.name for f in dataclasses.fields(Report)} == set(value) - {"schema_version"}
    assert {"median_sec", "spread_sec"} <= set(value["partitions"][0])
    assert all(
        k.endswith("_sec") for k in value["search"] if k.split("_")[0] in ("wall", "running")
    )


def test_infinite_cost_of_an_invalid_candidate_becomes_none() -> None:
    bad = Alternative("tvm", [0], [], "op kind", "crashed", math.inf, 0.0, "signal 11")
    report = dataclasses.replace(resnet_report(), alternatives=[bad])
    again = Report.from_json(report.to_json())
    assert again.alternatives[0] == dataclasses.replace(bad, median_sec=None)


def _without_nodes(value: dict[str, Any]) -> None:
    del value["nodes"]


def _text_as_index(value: dict[str, Any]) -> None:
    value["partitions"][3]["nodes"][0] = "zero"


def _boolean_as_number(value: dict[str, Any]) -> None:
    value["search"]["measured"] = True


def _unknown_field(value: dict[str, Any]) -> None:
    value["end_to_end"][0]["speed"] = 1


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (_without_nodes, "nodes"),
        (_text_as_index, r"partitions\[3\].nodes\[0\]"),
        (_boolean_as_number, "search.measured"),
        (_unknown_field, "speed"),
    ],
)
def test_damage_is_named(damage: Any, named: str) -> None:
    value = json.loads(resnet_report().to_json())
    damage(value)
    with pytest.raises(BundleError, match=named):
        Report.from_json(json.dumps(value))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"schema_version": 99}'])
def test_something_else_is_no_report(text: str) -> None:
    with pytest.raises(BundleError):
        Report.from_json(text)


def test_defaults_may_be_left_out() -> None:
    value = json.loads(resnet_report().to_json())
    del value["search"]
    assert Report.from_json(json.dumps(value)).search == SearchStats()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.5, "2.50 s"),
        (141.2, "141 s"),
        (0.00124, "1.24 ms"),
        (8.7e-5, "87.0 µs"),
        (2e-7, "0.20 µs"),
    ],
)
def test_times_have_a_readable_unit(seconds: float, text: str) -> None:
    assert format_sec(seconds) == text


def test_spread_is_in_the_median_s_unit() -> None:
    assert format_time(0.00124, 3.4e-5) == "1.24 ms ± 0.03"
    assert format_time(0.249, 0.0039) == "249 ms ± 3.9"
    assert format_time(None, 0.0) == "–"


def test_shapes() -> None:
    assert shape_text((1, 64, 56, 56)) == "1x64x56x56"
    assert shape_text(()) == "()"
