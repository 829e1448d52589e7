"""Sources that tests write, and what is in the objects compiled from them."""

from __future__ import annotations

from pathlib import Path

from collage.backends.toolchain.compiling import run_tool


def write(path: Path, text: str) -> Path:
    """The file, with its folder and this text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def symbols(path: Path, *flags: str) -> dict[str, str]:
    """Symbol types of an object or library, by name, as ``nm`` says."""
    table = run_tool(["nm", *flags, str(path)])
    fields = [line.split() for line in table.splitlines()]
    return {parts[-1]: parts[-2] for parts in fields if len(parts) >= 2}
