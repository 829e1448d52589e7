"""``docs/architecture.md`` says of every folder of the product what may live there."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")


def test_names_every_folder_below_them() -> None:
    packages = [
        one.parent
        for top in ("search", "cost", "backends", "collage")
        for one in (ROOT / top).rglob("__init__.py")
        if one.resolve().is_relative_to(ROOT / top) and one.parent != ROOT / top
    ]
    assert packages
    missing = [
        str(package.relative_to(ROOT))
        for package in packages
        if f"`{package.name}/`" not in PAGE and f"/{package.name}/`" not in PAGE
    ]
    assert not missing


def test_says_of_every_folder_what_may_live_there() -> None:
    packages = [
        *(p for top in ("search", "cost", "backends") for p in (ROOT / top).iterdir()),
        *(p for p in (ROOT / "collage").iterdir() if not p.is_symlink()),
    ]
    named = {str(p.relative_to(ROOT)) + "/" for p in packages if (p / "__init__.py").is_file()}
    missing = [name for name in sorted(named) if f"`{name}`" not in PAGE]
    assert not missing
