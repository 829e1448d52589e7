"""What libraries read of the environment is chosen before anything can bring them."""

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


@pytest.mark.parametrize("chosen", [None, "0"])
def test_onnxruntime_tells_nobody_unless_the_user_wants_it(chosen: str | None) -> None:
    plain = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(
        [sys.executable, "-c", "import collage, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"],
        env=plain if chosen is None else {**plain, "ORT_DISABLE_TELEMETRY": chosen},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == (chosen or "1")
