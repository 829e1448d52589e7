"""Mutated models, logs, bundles and messages: a clear error each; no crash, no hang, no memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.subjects import SUBJECTS

ROOT = Path(__file__).parents[2]
SAMPLE = 100
"""Of each kind in the quick suite, but for what takes long to make; the slow one has 2,500."""


def _feed(kind: str, seed: int, count: int, folder: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz.child", kind, str(seed), str(count), str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=30 + 5 * count
    )
    lines = done.stdout.splitlines()
    wrong = [json.loads(line) for line in lines if line.startswith("{")]
    fed = [int(line) for line in lines if line.isdigit()]
    assert done.returncode == 0, f"died of input {fed[-1:]}: {done.stderr[-2000:]}"
    assert not wrong, "\n".join(f"{kind} {one['number']}: {one['wrong']}" for one in wrong)
    assert fed == list(range(seed, seed + count))


@pytest.mark.parametrize("kind", [kind for kind in SUBJECTS if kind != "fields"])
def test_a_sample(kind: str, tmp_path: Path) -> None:
    _feed(kind, 0, SAMPLE, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SUBJECTS)
def test_thousands(kind: str, tmp_path: Path) -> None:
    _feed(kind, 1000, 2500, tmp_path)
