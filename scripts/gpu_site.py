"""Unpacks what ``gpu_bundle.sh`` packed, once, and prints the folder for PYTHONPATH.

    python3 gpu_site.py .gpu/collage-gpu.tar.xz /tmp/collage-gpu-site

Wheels are unpacked only where their module is missing, so that nothing shadows what is installed.
"""

from __future__ import annotations

import fcntl
import os
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path


def main() -> None:
    """Unpack, if this archive was not unpacked there before."""
    archive, site = Path(sys.argv[1]), Path(sys.argv[2])
    site.parent.mkdir(parents=True, exist_ok=True)
    with site.with_name(f"{site.name}.lock").open("w") as lock:
        # Two checks that begin together share the folder; the lock ends with the file.
        fcntl.flock(lock, fcntl.LOCK_EX)
        unpack(archive, site)
    print(site)


def unpack(archive: Path, site: Path) -> None:
    """Fill the folder, unless it holds this very archive."""
    mark = site / ".unpacked"
    stamp = f"{archive.stat().st_size} {archive.stat().st_mtime_ns}"
    if not mark.exists() or mark.read_text() != stamp:
        site.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as tar:
            tar.extractall(site, filter="data")
        for wheel in sorted((site / "wheels").glob("*.whl")):
            unpack_if_missing(wheel, site)
        offer_cutlass(site)
        mark.write_text(stamp)


def unpack_if_missing(wheel: Path, site: Path) -> None:
    """A wheel's modules, unless they can be imported already."""
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
        modules = {
            top.removesuffix(".py") for top in tops if not top.endswith((".dist-info", ".data"))
        }
        if any(find_spec(module) is None for module in modules):
            archive.extractall(site)
            print(f"{wheel.name} was missing", file=sys.stderr)


def offer_cutlass(site: Path) -> None:
    """CUTLASS's headers under the name that its wheel has, from where TVM's bundle put them."""
    home = os.environ.get("CUTLASS_HOME")
    if home is None or not (site / "cutlass").exists() or find_spec("cutlass_library") is not None:
        return
    examples = Path(home) / "examples"
    if not examples.exists():
        examples.symlink_to(site / "cutlass" / "examples")
    package = site / "cutlass_library"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text('"""CUTLASS\'s headers."""\n')
    if not (package / "source").exists():
        # One link to the whole: a header includes ../examples from its place.
        (package / "source").symlink_to(home)


if __name__ == "__main__":
    main()
