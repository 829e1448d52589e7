"""Which files hold tests of what a run asks for, told without importing them.

``make test-cuda`` and ``make test-torch`` want the tests of a sixth of all files, and each of their
processes imported all of them first. A test that wears one of these marks has its name in its file.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import pytest

NAMED = ("cuda", "torch")
"""Marks of which a run may ask for the tests that wear them: ``-m "cuda and not slow"``."""


def asked_for(expression: str) -> str:
    """The mark that every test of a run wears; empty where none is known.

    Parameters
    ----------
    expression : str
        As pytest's ``-m`` takes it.
    """
    first, *others = expression.split(" and ")
    return first if others and first in NAMED and " or " not in expression else ""


@functools.cache
def names(file: Path, mark: str) -> bool:
    """Whether a file says a mark's name."""
    return mark in file.read_text(encoding="utf-8")


def require_named(items: Iterable[pytest.Item]) -> None:
    """See that no test would be missed.

    Raises
    ------
    pytest.UsageError
        Where a test wears a mark that its file does not name.
    """
    for item in items:
        for mark in NAMED:
            if item.get_closest_marker(mark) is not None and not names(item.path, mark):
                raise pytest.UsageError(f"{item.path} does not name its mark '{mark}'")
