"""Pages name files, modules and commands that are there, and relative links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/**/*.md", "examples/**/*.md")
    for page in ROOT.glob(pattern)
)
HISTORY = ROOT / "CHANGELOG.md"
"""What it names may be gone."""

_LINK = re.compile(r"(?<!\w)\[[^\]]*\]\((?!\w+:|#)([^)#\s]+)(?:#[^)]*)?\)")
_TOPS = "backends|benchmarks|collage|cost|docs|examples|scripts|search|tests"
_PATH = re.compile(rf"(?<![\w/.-])(?:{_TOPS})/[\w/.-]*\w")
_MODULE = re.compile(r"python -m ((?:benchmarks|collage)(?:\.\w+)*)")


def _links(text: str) -> Iterator[str]:
    yield from _LINK.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def _paths(text: str) -> Iterator[str]:
    for quoted in re.findall(r"`([^`\n]+)`", text):
        yield from _PATH.findall(quoted)


def _is_there(path: str, page: Path) -> bool:
    """In the repository, beside the page, or as a header that programs include."""
    near = (ROOT / path).exists() or (page.parent / path).exists()
    return near or any((ROOT / "collage").glob(f"*/*/include/{path}"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = [link for link in _links(text) if not (page.parent / link).exists()]
    if page != HISTORY:
        missing += [path for path in _paths(text) if not _is_there(path, page)]
        for module in _MODULE.findall(text):
            place = ROOT / module.replace(".", "/")
            if not (place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()):
                missing.append(module)
    assert not missing


def test_what_is_missing_is_found() -> None:
    text = "[a](no/such.md#part), `collage/no_such.py` and `python -m collage.cli.no_such`"
    assert list(_links(text)) == ["no/such.md"]
    assert [path for path in _paths(text) if not _is_there(path, HISTORY)] == ["collage/no_such.py"]
