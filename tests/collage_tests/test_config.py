"""How kernels' threads wait is chosen before anything can bring OpenMP's runtime."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_SAYS = "import collage, os; print(os.environ.get('GOMP_SPINCOUNT'))"


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, "12000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, "None"),
    ],
)
def test_who_has_chosen_keeps_it(chosen: dict[str, str], expected: str) -> None:
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("GOMP_", "OMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", _SAYS],
        env={**plain, **chosen},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == expected


def test_no_runtime_is_loaded_before_it_is_chosen() -> None:
    """Whoever imports this package first gets the choice; the runtime reads it once."""
    code = "import collage\nassert 'libgomp' not in open('/proc/self/maps').read()\nimport tvm"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
