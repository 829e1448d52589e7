"""What a model keeps before its first call, where that is more than one number: a file each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from collage.bundle.folder import STATE
from collage.bundle.signature import FunctionEntry
from collage.state import StateTensor


def write_initial(folder: Path, functions: Sequence[FunctionEntry]) -> tuple[FunctionEntry, ...]:
    """Write the files.

    Parameters
    ----------
    folder : Path
        The bundle's.
    functions : sequence of FunctionEntry
        With what they keep in memory.

    Returns
    -------
    tuple of FunctionEntry
        The same with the files' places.

    Raises
    ------
    OSError
        When one cannot be written.
    """
    written = []
    for place, function in enumerate(functions):

        def in_file(kept: StateTensor, place: int = place) -> StateTensor:
            if not kept.data:
                return kept
            (folder / STATE).mkdir(exist_ok=True)
            file = f"{STATE}/{place}-{kept.input}.bin"
            (folder / file).write_bytes(kept.data)
            return msgspec.structs.replace(kept, data=b"", file=file)

        written.append(_with_state(function, [in_file(kept) for kept in _state(function)]))
    return tuple(written)


def files_of(functions: Sequence[FunctionEntry]) -> list[str]:
    """The places of the files in a bundle."""
    return [kept.file for function in functions for kept in _state(function) if kept.file]


def with_initial(folder: Path, function: FunctionEntry) -> FunctionEntry:
    """A function with what it keeps in memory.

    Parameters
    ----------
    folder : Path
        The bundle's.
    function : FunctionEntry
        As its manifest lists it.

    Returns
    -------
    FunctionEntry
        Without files.
    """
    read = [
        msgspec.structs.replace(kept, data=(folder / kept.file).read_bytes(), file="")
        if kept.file
        else kept
        for kept in _state(function)
    ]
    return _with_state(function, read)


def _state(function: FunctionEntry) -> tuple[StateTensor, ...]:
    return function.signature.state if function.signature is not None else ()


def _with_state(function: FunctionEntry, state: Sequence[StateTensor]) -> FunctionEntry:
    if function.signature is None or not state:
        return function
    signature = msgspec.structs.replace(function.signature, state=tuple(state))
    return msgspec.structs.replace(function, signature=signature)
