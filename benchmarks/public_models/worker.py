"""The process that networks run in: one request, one answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.public_models.trial import attempt
from benchmarks.timing.child import serve
from collage.backends.toolchain.children.child_boot import Line


def main(line: Line) -> None:
    """Answer requests until there are no more."""
    serve(line, _answer)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    return attempt(request["model"], Path(request["wheel"]), float(request["budget_sec"]))
