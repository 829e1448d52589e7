"""What all commands share: options, output, errors in one line, progress, sample files.

:func:`run` ends every command with a line and an exit code, never a traceback. Results go through
:func:`out` or :func:`print_json`, everything else to :func:`err`; within :func:`results_only`, so
does what compilers print, while a :func:`progress_display` is shown. The other functions read
options' texts; the options that several commands have are types in ``options``.
"""

from collage.cli.terminal.console import err, out, print_json, results_only
from collage.cli.terminal.errors import Interrupted, run
from collage.cli.terminal.options import (
    check_log,
    check_model,
    example,
    parse_bytes,
    parse_shapes,
    parse_wishes,
)
from collage.cli.terminal.progress import progress_display
from collage.cli.terminal.samples import read_sample

__all__ = [
    "Interrupted",
    "check_log",
    "check_model",
    "err",
    "example",
    "out",
    "parse_bytes",
    "parse_shapes",
    "parse_wishes",
    "print_json",
    "progress_display",
    "read_sample",
    "results_only",
    "run",
]
