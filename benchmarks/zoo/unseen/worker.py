"""The process that a network is made and tried in: one request, one answer."""

from __future__ import annotations

from typing import Any

from benchmarks.timing.child import serve
from benchmarks.zoo.unseen.trial import attempt
from collage.backends.toolchain.children.child_boot import Line


def main(line: Line) -> None:
    """Answer requests until there are no more."""
    serve(line, _answer)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    return attempt(**request)
