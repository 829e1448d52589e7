"""What stands in the cells of the tables that several benchmarks write."""

from __future__ import annotations


def cell(text: str) -> str:
    """Text that may stand in a table of Markdown."""
    return text.replace("|", "\\|").replace("\n", " ")
