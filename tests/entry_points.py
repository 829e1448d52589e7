"""This package as other programs find one that is installed, whatever was installed and when."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def with_entry_points(folder: Path) -> str:
    """A ``PYTHONPATH`` that has this repository and its entry points.

    Parameters
    ----------
    folder : Path
        Where what describes the package is written.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = folder / f"collage_tvm-{project['version']}.dist-info"
    info.mkdir(parents=True)
    named = f"Name: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\n{named}")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in found.items())
        for group, found in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
    return f"{folder}:{ROOT}"
