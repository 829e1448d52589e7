"""The sections of an ELF file (ELF-64, gABI chapter 4)."""

from __future__ import annotations

import mmap
import struct
from typing import NamedTuple

IDENTITY = b"\x7fELF\x02\x01"
"""How a file of 64 bits begins, the lowest byte first."""

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
WORD = struct.Struct("<I")

DYNAMIC_TYPE, DYNAMIC_SYMBOLS_TYPE, VERSIONS_TYPE = 6, 11, 0x6FFFFFFD


class Section(NamedTuple):
    """A line of the table of sections, its fields in the file's order and by its names."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def sections_of(content: bytes | mmap.mmap) -> list[Section]:
    """All sections of a file.

    Parameters
    ----------
    content : bytes or mmap
        The whole file.

    Returns
    -------
    list of Section
        In the file's order; that of their names comes along.

    Raises
    ------
    ValueError
        When it is another kind of file, or cut off.
    """
    if content[: len(IDENTITY)] != IDENTITY:
        raise ValueError("it is no 64-bit little-endian ELF file")
    try:
        header = HEADER.unpack_from(content)
        table, size, count = header[6], header[11], header[12]
        return [Section(*SECTION.unpack_from(content, table + n * size)) for n in range(count)]
    except struct.error as err:
        raise ValueError(f"it is cut off: {err}") from err


def text_at(content: bytes | mmap.mmap, place: int) -> str:
    """The text that begins at a place and ends with a zero.

    Parameters
    ----------
    content : bytes or mmap
        The whole file.
    place : int
        From its beginning.

    Returns
    -------
    str
        Without the zero.
    """
    return content[place : content.find(b"\0", place)].decode()
