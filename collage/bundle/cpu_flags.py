"""The instruction set extensions of this CPU: what a bundle may depend on."""

from __future__ import annotations

from pathlib import Path

_ISA_FLAGS = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "bmi1", "bmi2"),
    *("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd", "avx512ifma", "avx512vbmi"),
    *("avx512_vbmi2", "avx512_vnni", "avx512_bf16", "avx512_bitalg", "avx512_vpopcntdq"),
    "amx_tile",
)
"""Instruction set flags, as Linux names them, that compiled code may depend on."""


def cpu_flags() -> list[str]:
    """The instruction set extensions of this CPU (empty where Linux does not tell)."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return []
    for line in info.read_text(encoding="utf-8").splitlines():
        if line.startswith(("flags", "Features")):
            present = set(line.partition(":")[2].split())
            return [flag for flag in _ISA_FLAGS if flag in present]
    return []
