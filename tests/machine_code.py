"""What a linked CUDA library really holds: read from its bytes, no tool needed."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

_FATBIN = struct.pack("<I", 0xBA55ED50)
_KINDS = {1: "ptx", 2: "elf"}


@dataclass(frozen=True)
class DeviceCode:
    """One image inside of a fat binary.

    Attributes
    ----------
    kind : str
        ``elf`` is machine code, ``ptx`` would be compiled by the driver at load.
    arch : int
        Compute capability, 90 for ``sm_90a``.
    size_bytes : int
    """

    kind: str
    arch: int
    size_bytes: int


def device_code(library: Path) -> list[DeviceCode]:
    """Every device image in a file.

    The layout is that of ``fatbinary_section.h`` and of what ``fatbinary`` writes: a header of
    magic, version (2 bytes), its own size (2 bytes), payload size (8 bytes); then entries of kind
    (2 bytes), version (2 bytes), header size (4 bytes), payload size (8 bytes), with the
    architecture at byte 28.
    """
    data = library.read_bytes()
    found: list[DeviceCode] = []
    start = -1
    while (start := data.find(_FATBIN, start + 1)) >= 0:
        version, header, payload = struct.unpack_from("<HHQ", data, start + 4)
        if version != 1 or start + header + payload > len(data):
            continue
        place, end = start + header, start + header + payload
        while place + 32 <= end:
            kind, _, entry_header, size = struct.unpack_from("<HHIQ", data, place)
            (arch,) = struct.unpack_from("<I", data, place + 28)
            found.append(DeviceCode(_KINDS.get(kind, f"kind {kind}"), arch, size))
            place += entry_header + size
    return found


def defined_functions(library: Path) -> set[str]:
    """Names of the functions that a library defines."""
    command = ["nm", "--defined-only", "--format=posix", str(library)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    fields = (line.split() for line in listing.splitlines())
    return {f[0] for f in fields if len(f) > 1 and f[1] in "tTwW"}


def shared_statics(library: Path) -> list[str]:
    """Variables that a library shares with every other one of its process that has them too."""
    command = ["nm", "--dynamic", "--defined-only", "--format=posix", str(library)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    fields = (line.split() for line in listing.splitlines())
    return [f[0] for f in fields if len(f) > 1 and f[1] == "u"]


def needed_libraries(library: Path) -> set[str]:
    """Names of the shared libraries that the loader will look for."""
    command = ["readelf", "--dynamic", "--wide", str(library)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {
        line.partition("[")[2].rstrip("]") for line in listing.splitlines() if "(NEEDED)" in line
    }
