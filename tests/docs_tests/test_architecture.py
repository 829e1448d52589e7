"""``docs/architecture.md`` names files that exist, and every folder of the product."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
TOPS = "backends|benchmarks|collage|cost|docs|search|tests"
PATHS = sorted(set(re.findall(rf"`((?:{TOPS})/[\w/.]*|\w+\.toml)`", PAGE)))


@pytest.mark.parametrize("path", PATHS)
def test_what_it_names_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_says_of_every_folder_what_may_live_there() -> None:
    packages = [
        *(p for top in ("search", "cost", "backends") for p in (ROOT / top).iterdir()),
        *(p for p in (ROOT / "collage").iterdir() if not p.is_symlink()),
    ]
    named = {str(p.relative_to(ROOT)) + "/" for p in packages if (p / "__init__.py").is_file()}
    missing = [name for name in sorted(named) if f"`{name}`" not in PAGE]
    assert not missing
