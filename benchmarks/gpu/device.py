"""What NVIDIA's tools tell about the device; nothing here changes a setting."""

from __future__ import annotations

import shutil
import subprocess


def query(*fields: str) -> dict[str, str]:
    """Facts of the first GPU from ``nvidia-smi``; empty without one.

    Parameters
    ----------
    fields : str
        As ``nvidia-smi --help-query-gpu`` lists them, for example ``clocks.sm``.
    """
    if shutil.which("nvidia-smi") is None:
        return {}
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader", "-i", "0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (subprocess.SubprocessError, OSError):
        return {}
    values = [value.strip() for value in done.stdout.strip().splitlines()[0].split(",")]
    return dict(zip(fields, values, strict=False))


def clocks() -> dict[str, str]:
    """Clocks, power and temperature just now."""
    return query("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")
