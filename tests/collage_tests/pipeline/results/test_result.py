"""What a result looks like where somebody prints it."""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import collage
from collage.backends.contract.errors import OutputError
from tests.collage_tests.conftest import Optimized


def test_is_printed_as_a_summary(optimized: Optimized, tmp_path: Path) -> None:
    result = optimized.result
    shown = str(result)
    lines = shown.splitlines()
    assert 6 <= len(lines) <= 14 and max(map(len, lines)) < 240
    assert lines[0].startswith(f"{result.model} on ") and " is chosen, " in lines[0]
    # What is computed in place, such as a reshape, may be all that a backend has.
    for backend in {part.backend for part in result.report.partitions if not part.inline}:
        assert any(line.startswith(f"  {backend}: ") and "partition" in line for line in lines)
    others = [row.name for row in result.report.end_to_end if not row.chosen]
    assert sum(line.startswith(tuple(f"  {name}: " for name in others)) for line in lines) >= 2
    assert any(": no partitioning of these" in line for line in lines)
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


def test_an_export_that_fails_leaves_the_folder_as_it_was(
    compiled: collage.Result, tmp_path: Path
) -> None:
    """A new one can be written to again, and an earlier bundle still runs."""
    broken = replace(
        compiled, library=replace(compiled.library, shared_libraries=(tmp_path / "none.so",))
    )
    folder = tmp_path / "net.bundle"
    with pytest.raises(OutputError, match="cannot write"):
        broken.export(folder)
    assert not list(folder.iterdir())
    (folder / ".partial").mkdir()  # as a process that is killed would leave it
    (folder / ".partial" / "model.so").touch()
    bundle = collage.load(compiled.export(folder, with_runtime=True))
    written = sorted(folder.rglob("*"))
    inputs = bundle.random_inputs(seed=3)
    want = bundle(*inputs)
    with pytest.raises(OutputError, match="cannot write"):
        broken.export(folder)
    assert sorted(folder.rglob("*")) == written
    np.testing.assert_array_equal(collage.load(folder)(*inputs), want)
    compiled.export(folder)
    assert not (folder / "runtime").exists() and not (folder / ".partial").exists()
    np.testing.assert_array_equal(collage.load(folder)(*inputs), want)
