"""Who measured what and how long, on the page, in the terminal and in the JSON."""

from __future__ import annotations

import dataclasses
import html

import pytest
from rich.console import Console

from collage.report import BuilderUse, Report, WorkerUse, share_of, summary
from collage.report.rendering.html import render_html
from tests.collage_tests.report.report_data import resnet_report

HOSTILE = "<script>alert(1)</script>"
WORKERS = [
    WorkerUse("a cuda:0", {"cutlass": 3, "cudnn": 40, "whole models": 1}, 91.5, 0.75),
    WorkerUse("b cuda:0", {"cudnn": 2}, 4.0, 0.03, f"it drifts {HOSTILE}"),
]


@pytest.fixture
def report() -> Report:
    builders = BuilderUse(14, 45, 812.0, 0.5)
    return dataclasses.replace(resnet_report(), workers=WORKERS, builders=builders)


def shown(report: Report) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(summary(report))
    return " ".join(captured.get().split())


def test_they_are_in_the_json(report: Report) -> None:
    assert Report.from_json(report.to_json()) == report


def test_the_page_says_who_measured(report: Report) -> None:
    page = render_html(report)
    for text in (
        "40 cudnn, 3 cutlass, 1 whole models",
        "91.5 s (75 %)",
        "left out: it drifts",
        "45 candidates were built by 14 builders: 812 s (50 %)",
    ):
        assert text in page
    assert HOSTILE not in page and html.escape(HOSTILE) in page
    assert "Who measured" not in render_html(resnet_report()), "nobody did"


def test_a_terminal_shows_several_and_those_left_out(report: Report) -> None:
    text = shown(report)
    assert "a cuda:0 40 cudnn, 3 cutlass, 1 whole models 91.5 s (75 %)" in text
    assert f"b cuda:0 2 cudnn 4.00 s (3 %) left out: it drifts {HOSTILE}" in text
    alone = dataclasses.replace(report, workers=WORKERS[:1])
    assert "cuda:0" not in shown(alone), "one that did everything"
    assert "left out" in shown(dataclasses.replace(report, workers=WORKERS[1:]))


def test_a_share_is_at_most_all() -> None:
    assert share_of(1.0, 4.0) == 0.25
    assert share_of(4.001, 4.0) == 1.0
    assert share_of(1.0, 0.0) is None
    assert WorkerUse("a", {}, 2.0).how_long == "2.00 s" and WorkerUse("a").what == "nothing"
    assert BuilderUse().text == "" and "1 builder:" in BuilderUse(1, 1, 1.0, None).text
