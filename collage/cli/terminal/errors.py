"""How commands end: one line on standard error and an exit code, never a traceback by surprise.

0 is success, 2 the user's mistake, 1 anything else that failed, 130 an interruption (128 + SIGINT),
143 a termination (128 + SIGTERM).
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import typer

from collage.backends.contract.errors import CollageError, UserError

EXIT_FAILURE = 1
EXIT_USER = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

_UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EPIPE)

# Typer brings its own copy of Click since 0.26; this is Click's base class in either.
_UsageError = typer.BadParameter.__mro__[1]


class Interrupted(CollageError):
    """The user pressed Ctrl-C; the message says what was kept."""


def run(app: typer.Typer, arguments: Sequence[str], *, began: float | None = None) -> int:
    """Run a command and return its exit code.

    With ``--debug`` among the arguments an error's traceback is printed before its line.

    Parameters
    ----------
    app : typer.Typer
        All commands.
    arguments : sequence of str
        Without the program's name.
    began : float, optional
        When the program did, on the monotonic clock, if not now; commands find it as their
        context's ``obj``.

    Returns
    -------
    int
        0 when all went well.

    Examples
    --------
    >>> app = typer.Typer()
    >>> @app.command()
    ... def twice(number: int) -> None:
    ...     print(2 * number)
    >>> run(app, ["21"])
    42
    0
    """
    began = time.monotonic() if began is None else began
    _have_streams()
    try:
        with _tidy_at_sigterm():
            code = typer.main.get_command(app).main(
                args=list(arguments), prog_name="collage", standalone_mode=False, obj=began
            )
        sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 - the outermost border: every error ends here, as a line
        if "--debug" in arguments:
            traceback.print_exc()
        line, code = _line_and_code(error)
        _print_line(line)
        return code
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except _Terminated:
        _print_line("terminated")
        return EXIT_TERMINATED
    if code == EXIT_INTERRUPTED:
        _print_line("interrupted")
    return code if isinstance(code, int) else 0


class _Terminated(SystemExit):
    """SIGTERM came."""


@contextmanager
def _tidy_at_sigterm() -> Iterator[None]:
    """While this lasts, SIGTERM ends the program as an error does: folders and processes go with
    whoever made them. By default the system ends it at once, and its folders stay."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def terminate(*_: Any) -> NoReturn:
        raise _Terminated(EXIT_TERMINATED)

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _have_streams() -> None:
    """Whoever started this may have closed them, or wants another encoding than its words need."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # Else the next file that is opened, here or by a compiler, would be taken for it.
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
        stream = getattr(sys, name)
        if stream is None:
            stream = Path(os.devnull).open("r+", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)
        elif number and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _line_and_code(error: Exception) -> tuple[str, int]:
    if isinstance(error, Interrupted):
        return str(error), EXIT_INTERRUPTED
    if isinstance(error, UserError):
        return f"error: {error}", EXIT_USER
    if isinstance(error, CollageError):
        return f"error: {error}", EXIT_FAILURE
    if isinstance(error, _UsageError):
        return f"error: {_usage(error)}", EXIT_USER
    if isinstance(error, typer.Abort):
        return "interrupted", EXIT_INTERRUPTED
    if isinstance(error, OSError) and error.errno in _UNWRITTEN:
        return f"error: cannot write what is to be printed or kept: {error.strerror}", EXIT_FAILURE
    return (
        f"error: unexpected {type(error).__name__}: {error} (--debug prints the traceback)",
        EXIT_FAILURE,
    )


def _usage(error: Exception) -> str:
    # Where nothing was given the help is printed, and the error says nothing more.
    message = str(getattr(error, "format_message", error.__str__)()) or "no command was given"
    context = getattr(error, "ctx", None)
    return f"{message} (see '{context.command_path} --help')" if context else message


def _print_line(text: str) -> None:
    with suppress(OSError):
        sys.stdout.flush()
    sys.stderr.write(" ".join(text.split()) + "\n")
