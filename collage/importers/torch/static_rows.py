"""Programs of static shapes in operators that can be imported, whatever room rows are given."""

from __future__ import annotations

import torch

from collage.backends.contract.errors import ModelError, telling_line
from collage.importers.torch.choosing import with_chosen_rows
from collage.importers.torch.meant import UnknownError
from collage.importers.torch.taken_apart import taken_apart


def with_static_rows(
    program: torch.export.ExportedProgram, room: int | None, known: frozenset[str]
) -> torch.export.ExportedProgram:
    """A program whose rows that data choose have a place each, taken apart.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Its inputs' extents are numbers.
    room : int or None
        As :func:`~collage.importers.torch.choosing.with_chosen_rows` takes it.
    known : frozenset of str
        Operators that are left whole.

    Returns
    -------
    torch.export.ExportedProgram
        Traced anew.

    Raises
    ------
    ModelError
        Where what follows rows cannot be computed for another number of them.
    """
    try:
        return taken_apart(with_chosen_rows(program, room), known)
    except (ModelError, UnknownError):
        raise
    except Exception as err:  # PyTorch's operators raise anything of shapes that they do not take
        if room is None:
            raise
        raise ModelError(
            "what follows rows that data choose does not take another number of them than there "
            f"may be at most: {telling_line(err)}; cut the network before it",
            value=room,
        ) from err
