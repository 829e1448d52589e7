"""The instruction set extensions of processors: what a bundle may use, and what this one has."""

from __future__ import annotations

from pathlib import Path

import tvm

_LINUX_NAMES = {
    **{name: name for name in ("avx", "avx2", "fma", "f16c", "bmi2")},
    **{f"avx512{part}": f"avx512{part}" for part in ("f", "bw", "dq", "vl", "cd", "ifma", "vbmi")},
    **{
        f"avx512{part}": f"avx512_{part}"
        for part in ("vbmi2", "vnni", "bf16", "bitalg", "vpopcntdq", "fp16")
    },
    # Bits of bytes are turned and counted with it, which no source asks for by name.
    "gfni": "gfni",
    "sse4.2": "sse4_2",
    "bmi": "bmi1",
    "avxvnni": "avx_vnni",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
}
"""Instruction set extensions that compiled code may depend on, by LLVM's names."""

_SUMS_IN_32_BITS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})


def cpu_flags_of(target: tvm.target.Target) -> tuple[str, ...]:
    """The extensions that code for an LLVM target may use, as Linux names them."""
    features = set(map(str, tvm.target.codegen.llvm_get_cpu_features(target)))
    return tuple(linux for llvm, linux in _LINUX_NAMES.items() if llvm in features)


def lacking_here(mcpu: str) -> tuple[str, ...]:
    """What a processor of a model has and this one lacks, as LLVM is told to leave it out.

    LLVM goes by the model, and a virtual machine may hide some of what its model has.

    Parameters
    ----------
    mcpu : str
        By LLVM's name.

    Returns
    -------
    tuple of str
        For ``mattr``; nothing where Linux does not tell what there is.

    Examples
    --------
    >>> lacking_here("x86-64")
    ()
    """
    here, left_out = cpu_flags_here(), list[str]()
    for llvm, linux in _LINUX_NAMES.items() if here else ():
        target = tvm.target.Target({"kind": "llvm", "mcpu": mcpu, "mattr": left_out})
        if linux not in here and linux in cpu_flags_of(target):
            left_out.append(f"-{llvm}")  # With what builds on it.
    return tuple(left_out)


def cpu_flags_here() -> frozenset[str]:
    """All extensions of this machine's processor; empty where Linux does not tell."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith(("flags", "Features")):
                return frozenset(line.partition(":")[2].split())
    return frozenset()


def sums_bytes_in_32_bits() -> bool:
    """Whether this processor adds products of bytes without cutting them on the way.

    Others (AVX2, AVX-512 without VNNI) add pairs of them in 16 bits, and what is too large for
    these is cut: libraries then multiply smaller numbers, or are told to be exact.

    Examples
    --------
    >>> sums_bytes_in_32_bits() == bool(_SUMS_IN_32_BITS & cpu_flags_here())
    True
    """
    return bool(_SUMS_IN_32_BITS & cpu_flags_here())
