"""A backend installed from outside, through its entry point, in one short file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "third_party_backend"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example installed into it by pip."""
    folder = tmp_path_factory.mktemp("third_party")
    source = shutil.copytree(EXAMPLE, folder / "source")  # pip builds beside the sources
    site = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(site)]
    subprocess.run([*pip, *options, str(source)], check=True, timeout=300)
    return site


def test_is_one_file_of_under_60_lines() -> None:
    (file,) = EXAMPLE.glob("*.py")
    assert len(file.read_text().splitlines()) < 60


def test_keeps_the_contract_where_it_is_installed(site: Path) -> None:
    done = run_pytest(site, "examples/third_party_backend/tests/test_collage_silu.py")
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
