"""What a result looks like where somebody prints it."""

from __future__ import annotations

import html
from pathlib import Path

from tests.collage_tests.conftest import Optimized


def test_is_printed_as_a_summary(optimized: Optimized, tmp_path: Path) -> None:
    result = optimized.result
    shown = str(result)
    lines = shown.splitlines()
    assert 6 <= len(lines) <= 14 and max(map(len, lines)) < 240
    assert lines[0].startswith(f"{result.model} on ") and " is chosen, " in lines[0]
    for backend in {candidate.backend for candidate in result.partitioning.candidates}:
        assert any(line.startswith(f"  {backend}: ") and "partition" in line for line in lines)
    others = [row.name for row in result.report.end_to_end if not row.chosen]
    assert sum(line.startswith(tuple(f"  {name}: " for name in others)) for line in lines) >= 2
    assert any("proven: no partitioning" in line for line in lines)
    assert str(optimized.bundle) in lines[-1]
    again = result.export(tmp_path / "again")
    assert repr(result).splitlines()[-1].endswith(f", {again}")
    other = next(name for name in result.alternatives if name.startswith("single:"))
    assert "not exported yet" in str(result.alternative(other))


def test_shows_its_report_in_a_notebook(optimized: Optimized) -> None:
    frame = optimized.result._repr_html_()
    assert frame.startswith("<iframe ") and frame.count("<") == 2
    _, _, rest = frame.partition('srcdoc="')
    page, _, _ = rest.partition('"')
    assert html.unescape(page).startswith("<!DOCTYPE html>")
    assert optimized.result.model in html.unescape(page)
