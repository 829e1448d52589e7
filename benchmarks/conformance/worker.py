"""The process that cases run in: one request, one answer."""

from __future__ import annotations

from typing import Any

from benchmarks.conformance.peers import attempt_peer
from benchmarks.conformance.runs import PEERS
from benchmarks.conformance.trial import attempt
from benchmarks.timing.child import serve
from collage.backends.toolchain.children.child_boot import Line


def main(line: Line) -> None:
    """Answer requests until there are no more."""
    serve(line, _answer)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    name, backends = request["case"], request["backends"]
    return attempt_peer(name, backends) if backends in PEERS else attempt(name, backends)
