"""The process that a stage of a network runs in: one request, one answer."""

from __future__ import annotations

import resource
from typing import Any

from benchmarks.timing.child import serve
from benchmarks.zoo.compiling import compile_network
from benchmarks.zoo.importing import import_network
from collage.backends.toolchain.children.child_boot import Line


def main(line: Line, memory_gib: str) -> None:
    """Answer requests until there are no more."""
    if float(memory_gib):
        limit = int(float(memory_gib) * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    serve(line, _answer)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    arguments = {key: value for key, value in request.items() if key != "do"}
    match request["do"]:
        case "import":
            return import_network(**arguments)
        case "compile":
            return compile_network(**arguments)
        case other:
            raise ValueError(f"unknown request '{other}'")
