"""Loops of programs written by hand whose turns nobody else depends on."""

from __future__ import annotations

from typing import Any

from tvm.script.ir_builder import tirx as T

ATTRIBUTE = "collage.independent"
"""The annotation of such a loop."""


def each(count: int) -> Any:
    """A loop whose turns may run beside each other, and hold all that the program writes.

    A processor goes through them one by one, a GPU has a thread for each.

    Parameters
    ----------
    count : int
        Turns.

    Returns
    -------
    ForFrame
        To be entered; it gives the number of a turn.
    """
    return T.serial(0, count, annotations={ATTRIBUTE: True})
