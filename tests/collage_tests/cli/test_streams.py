"""Standard streams that are closed, full, or of an encoding that lacks what is printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collage.cli import main
from collage.testing.estimated import estimated_bundle


def _shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    collage = f"{sys.executable} -m collage"
    return subprocess.run(
        ["/bin/sh", "-c", command.replace("collage", collage, 1)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )


@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        (">&-", 0, ""),
        ("2>&- >&-", 0, ""),
        ("<&-", 0, ""),
        (">/dev/full", 1, "error: cannot write what is to be printed or kept: No space left"),
    ],
)
def test_streams_that_take_nothing(redirected: str, code: int, said: str) -> None:
    found = _shell(f"collage backends {redirected}")
    assert found.returncode == code
    assert found.stderr.startswith(said) and len(found.stderr.splitlines()) <= 1


def test_an_encoding_that_lacks_what_is_printed(tmp_path: Path) -> None:
    bundle = estimated_bundle(tmp_path / "exp.bundle")
    found = _shell(f"collage explain {bundle}", PYTHONIOENCODING="ascii")
    assert found.returncode == 0 and "exp" in found.stdout


def test_what_is_no_bundle_or_lacks_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = estimated_bundle(tmp_path / "exp.bundle")
    (bundle / "report.json").unlink()
    assert main(["explain", str(bundle)]) == 2
    assert capsys.readouterr().err == f"error: bundle '{bundle}' lacks report.json: copy it whole\n"
    model = tmp_path / "net.onnx"
    model.write_bytes(b"")
    assert main(["run", str(model)]) == 2
    assert f"'{model}' is a file and no bundle; of a model" in capsys.readouterr().err
