"""Where and on what a benchmark ran."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path

import psutil

_ROOT = Path(__file__).resolve().parents[2]


def machine() -> dict[str, str]:
    """CPU model, cores, memory, kernel and how busy the machine is just now."""
    return {
        "cpu": _cpu_model(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory_gib": f"{psutil.virtual_memory().total / 2**30:.0f}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "load_average_before": f"{os.getloadavg()[0]:.2f}",
    }


def commit() -> str:
    """The checked out commit, marked when tracked files differ from it; empty outside of git."""
    try:
        revision = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return revision + (" with local changes" if changed else "")


def now() -> str:
    """ISO 8601, UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _git(*arguments: str) -> str:
    run = subprocess.run(["git", *arguments], cwd=_ROOT, check=True, capture_output=True, text=True)
    return run.stdout.strip()


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor() or "unknown"
    fields: dict[str, str] = {}
    for line in info.read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    vectors = [f for f in ("avx2", "avx512f", "avx512_vnni", "amx_tile") if f in fields["flags"]]
    name = fields.get("model name", "unknown")
    return f"{name} (family {fields.get('cpu family')}, model {fields.get('model')}; " + (
        f"{', '.join(vectors)})"
    )
