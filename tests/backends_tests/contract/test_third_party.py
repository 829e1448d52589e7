"""Backends installed from outside, through their entry points, each in one short file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = {
    "third_party_backend": "test_collage_silu.py",
    "tensor_backend": "test_collage_tiles.py",
    "ahead_of_time_backend": "test_collage_board.py",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples installed into it by pip."""
    folder = tmp_path_factory.mktemp("third_party")
    # pip builds beside the sources.
    sources = [shutil.copytree(ROOT / "examples" / name, folder / name) for name in EXAMPLES]
    site = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(site)]
    subprocess.run([*pip, *options, *map(str, sources)], check=True, timeout=300)
    return site


@pytest.mark.parametrize("example", EXAMPLES)
def test_is_one_file_of_under_100_lines(example: str) -> None:
    (file,) = (ROOT / "examples" / example).glob("*.py")
    assert len(file.read_text().splitlines()) < (60 if example == "third_party_backend" else 100)


@pytest.mark.parametrize("example", EXAMPLES)
def test_keeps_the_contract_where_it_is_installed(site: Path, example: str) -> None:
    done = run_pytest(site, f"examples/{example}/tests/{EXAMPLES[example]}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


def test_is_unknown_where_it_is_not_installed() -> None:
    code = "from collage.backends.contract.registry import get_backend; get_backend('silu')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "there is no backend 'silu'; known backends: cublas, cudnn, cutlass," in done.stderr


def run_pytest(site: Path, target: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", target]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
