"""What NVIDIA's tools tell about the devices; nothing here changes a setting."""

from __future__ import annotations

import os
import shutil
import subprocess


def visible() -> list[str]:
    """The GPUs that may be used, as ``CUDA_VISIBLE_DEVICES`` names them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name.strip() for name in chosen.split(",") if name.strip()]
    return [values[0] for values in _ask(["index"])]


def query(*fields: str, gpu: str = "") -> dict[str, str]:
    """Facts of one GPU from ``nvidia-smi``; empty without one.

    Parameters
    ----------
    fields : str
        As ``nvidia-smi --help-query-gpu`` lists them, for example ``clocks.sm``.
    gpu : str
        Its index or UUID; the first one by default.
    """
    rows = _ask(list(fields), "-i", gpu or "0")
    return dict(zip(fields, rows[0], strict=False)) if rows else {}


def _ask(fields: list[str], *more: str) -> list[list[str]]:
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader", *more]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (subprocess.SubprocessError, OSError):
        return []
    return [[value.strip() for value in line.split(",")] for line in done.stdout.splitlines()]


def clocks(gpu: str = "") -> dict[str, str]:
    """Clocks, power and temperature just now."""
    return query("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", gpu=gpu)
