"""The command line: ``collage``, also ``python -m collage``; :func:`main` runs it.

A module for each command adds it to :data:`app`; the others are what commands share: their options,
the console, progress, and how errors end. Each command imports what it needs when it runs, so that
``collage --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from collage._version import __version__
from collage.cli import (
    _backends,
    _bench,
    _coverage,
    _explain,
    _log,
    _native,
    _optimize,
    _precompile,
    _run,
    _stability,
    _workers,
)
from collage.cli.terminal import out, run

__all__ = ["app", "main"]

app = typer.Typer(
    name="collage",
    help="Cut a model into partitions and give each to the backend that runs it fastest, "
    "by measurement.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
for _module in (
    *(_optimize, _run, _bench, _coverage, _backends),
    *(_precompile, _workers, _explain, _stability, _log, _native),
):
    _module.add_to(app)


def _tell_version(asked: bool) -> None:
    if asked:
        out().print(f"collage {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _before_any_command(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
) -> None:
    """What stands before a command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Examples
    --------
    What is wrong is one line on standard error, and the code 2 where the user can mend it:

    >>> main(["explain", "no_such.bundle"])
    2
    """
    if arguments is None:
        return run(app, sys.argv[1:], began=_process_began())
    return run(app, arguments)


def _process_began() -> float:
    """When this process began, on the monotonic clock: a budget is for its imports, too."""
    # In ticks since the machine began, after the name, which may hold anything. A time of day is
    # off by up to a second: the kernel says when the machine began in whole seconds.
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    age_sec = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - max(0.0, age_sec)
