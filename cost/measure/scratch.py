"""The folder that measuring works in."""

from __future__ import annotations

from pathlib import Path

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import OutputError


def make_scratch(context: BuildContext) -> Path:
    """The scratch folder, made when it is not there.

    Raises
    ------
    OutputError
        When it cannot be made.
    """
    try:
        context.work_dir.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise OutputError(
            f"cannot make the scratch folder '{context.work_dir}': {err.strerror}",
            value=str(context.work_dir),
        ) from err
    return context.work_dir
