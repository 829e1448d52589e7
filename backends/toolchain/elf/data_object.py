"""Objects that hold nothing but constants, as an assembler would make them of its own text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from collage.backends.contract.errors import CompileError
from collage.backends.toolchain.elf.sections import (
    HEADER,
    SECTION,
    SYMBOL,
    WORD,
    Section,
    sections_of,
)

MOST = 16_000
"""Constants of one object: each is two sections, and their numbers have 16 bits."""

_PROGBITS, _SYMBOLS, _STRINGS, _GROUP = 1, 2, 3, 17
_ALLOCATED, _IN_GROUP = 0x2, 0x200
_COMDAT = 1
_WEAK_OBJECT, _DEFAULT, _HIDDEN = 2 << 4 | 1, 0, 2
_ALIGNMENT = 64


def write_data_object(
    constants: Mapping[str, np.ndarray], output: Path, like: Path, *, hidden: bool = True
) -> Path:
    """Write an object with read-only data, each constant 64-byte aligned.

    Parameters
    ----------
    constants : mapping of str to ndarray
        By symbol; at most :data:`MOST`. Each stands in a COMDAT group of its own, so that a linker
        keeps one however many objects bring it.
    output : Path
        The object; its folder exists.
    like : Path
        An object of the compiler's, for the machine that this one is for.
    hidden : bool
        Whether nobody outside of what is linked is to find the symbols.

    Returns
    -------
    Path
        ``output``.

    Raises
    ------
    CompileError
        When that object is no 64-bit little-endian one.

    Examples
    --------
    >>> from collage.backends.contract import BuildContext
    >>> from collage.backends.toolchain.native import num_threads_object
    >>> like = num_threads_object(BuildContext(Path("cache"), Path("scratch")))
    >>> made = write_data_object({"answer": np.array([42])}, Path("answer.o"), like)
    >>> made.read_bytes().count((42).to_bytes(8, "little"))
    1
    """
    header = like.read_bytes()
    try:
        sections_of(header)
    except ValueError as err:
        raise CompileError(f"cannot write an object like '{like}': {err}", value=str(like)) from err
    with output.open("wb") as file:
        file.write(bytes(HEADER.size))
        count = len(constants)
        writer = _Writer(file)
        symbol_table = 2 * count + 2
        for number, (symbol, array) in enumerate(constants.items(), 1):
            group = WORD.pack(_COMDAT) + WORD.pack(2 * number)
            writer.add(".group", _GROUP, group, link=symbol_table, info=number, each=WORD.size)
            data = np.ascontiguousarray(array).data if array.nbytes else b"\0"
            name, flags = f".rodata.{symbol}", _ALLOCATED | _IN_GROUP
            writer.add(name, _PROGBITS, data, flags=flags, align=_ALIGNMENT)
        # Without it the linker has stacks be code as well.
        writer.add(".note.GNU-stack", _PROGBITS, b"")
        names, symbols = _Names(), [bytes(SYMBOL.size)]
        for number, (symbol, array) in enumerate(constants.items(), 1):
            size = max(array.nbytes, 1)
            at = names.place(symbol)
            symbols.append(
                SYMBOL.pack(at, _WEAK_OBJECT, _HIDDEN if hidden else _DEFAULT, 2 * number, 0, size)
            )
        writer.add(
            *(".symtab", _SYMBOLS, b"".join(symbols)),
            link=symbol_table + 1,
            info=1,
            each=SYMBOL.size,
            align=8,
        )
        writer.add(".strtab", _STRINGS, bytes(names.text))
        table, number = writer.finish()
        fields = list(HEADER.unpack_from(header))
        fields[6] = table
        fields[11:] = [SECTION.size, number, number - 1]
        file.seek(0)
        file.write(HEADER.pack(*fields))
    return output


class _Names:
    """Texts one behind the other, each ending with a zero; the first one is empty."""

    def __init__(self) -> None:
        self.text = bytearray(1)

    def place(self, name: str) -> int:
        """Where it begins."""
        at = len(self.text)
        self.text += name.encode() + b"\0"
        return at


class _Writer:
    """Writes sections into a file that has room for the header."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._names = _Names()
        self._sections = [Section(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)]

    def add(
        self,
        name: str,
        kind: int,
        content: bytes | memoryview,
        *,
        flags: int = 0,
        link: int = 0,
        info: int = 0,
        align: int = 4,
        each: int = 0,
    ) -> None:
        """Write one behind those before it."""
        size = content.nbytes if isinstance(content, memoryview) else len(content)
        at = self._aligned(align)
        self._file.write(content)
        place = self._names.place(name)
        self._sections.append(Section(place, kind, flags, 0, at, size, link, info, align, each))

    def finish(self) -> tuple[int, int]:
        """Write the names and the table of sections; where it begins, and how many they are."""
        place = self._names.place(".shstrtab")
        at = self._aligned(1)
        self._file.write(self._names.text)
        size = len(self._names.text)
        self._sections.append(Section(place, _STRINGS, 0, 0, at, size, 0, 0, 1, 0))
        table = self._aligned(8)
        self._file.write(b"".join(SECTION.pack(*section) for section in self._sections))
        return table, len(self._sections)

    def _aligned(self, to: int) -> int:
        at = self._file.tell()
        self._file.write(bytes(-at % to))
        return at + -at % to
