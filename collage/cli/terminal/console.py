"""Where commands print: results on standard output, everything else on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.console import Console

PIPE_WIDTH = 160
"""Columns of a table that goes into a pipe or a file, where there is no terminal to ask."""


def out() -> Console:
    """For results.

    Examples
    --------
    >>> out().print("3 candidates")
    3 candidates
    """
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def err() -> Console:
    """For progress and remarks.

    Examples
    --------
    >>> err().file is sys.stderr
    True
    """
    return Console(file=sys.stderr, width=None if sys.stderr.isatty() else PIPE_WIDTH)


def print_json(value: Any) -> None:
    """One JSON object on standard output, and nothing else.

    Examples
    --------
    >>> print_json({"candidates": 3, "seconds": float("inf")})
    {
     "candidates": 3,
     "seconds": null
    }
    """
    # Infinity and not-a-number, which JSON cannot write, become null.
    text = msgspec.json.encode(value, enc_hook=str)
    sys.stdout.write(msgspec.json.format(text, indent=1).decode() + "\n")


@contextmanager
def results_only() -> Iterator[None]:
    """Send what compilers and libraries print meanwhile, children too, to standard error.

    Examples
    --------
    >>> with results_only():
    ...     written = os.write(1, b"a compiler's remark, on standard error\\n")
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
