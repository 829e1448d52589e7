"""Every error this project raises, in one small hierarchy.

Two branches matter to a caller: :class:`UserError` is a mistake that the message tells how to mend
(the command line prints it as one line and exits with 2), everything else is a failure of a tool or
of this project. Each error carries the value that broke the rule as ``value``.
"""

from __future__ import annotations

import re


class CollageError(Exception):
    """Root of all errors raised by this project.

    Parameters
    ----------
    message : str
        One line: what is wrong, where, and how to mend it.
    value : object, optional
        The value that broke the rule.
    """

    def __init__(self, message: str, *, value: object = None) -> None:
        super().__init__(message)
        self.value = value


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class UserError(CollageError):
    """Something the user gave is wrong; the message says how to mend it.

    Parameters
    ----------
    message : str
        Shown with control characters written out: names in it may come from a file, and neither
        break its one line nor speak to a terminal.
    value : object, optional
        The value that broke the rule.

    Examples
    --------
    >>> print(UserError("nothing defines 'a\\nb'"))
    nothing defines 'a\\nb'
    """

    def __init__(self, message: str, *, value: object = None) -> None:
        super().__init__(_CONTROL.sub(lambda one: repr(one[0])[1:-1], message), value=value)


class TargetError(UserError):
    """An unknown target, an unknown or ill-typed attribute, or one without a matching device."""


class BackendUnavailableError(TargetError):
    """A known backend whose library is not installed here.

    Parameters
    ----------
    reason : str
        What is missing.
    remedy : str
        The line that mends it, for example ``pip install ...``, if there is one.
    value : object, optional
        What was looked for.
    """

    def __init__(self, reason: str, *, remedy: str = "", value: object = None) -> None:
        super().__init__(f"{reason}; {remedy}" if remedy else reason, value=value)
        self.reason = reason
        self.remedy = remedy


class WorkersError(UserError):
    """Workers of an unknown name, with a malformed address, or whose library is not installed."""


class ModelError(UserError):
    """A file that is no model, or a model with operators that cannot be imported."""


class ShapeError(UserError):
    """A missing, ill-formed or contradictory input shape."""


class InputError(UserError):
    """An input array of the wrong name, shape or dtype was given to a compiled model."""


class RestrictionError(UserError):
    """What is pinned or banned matches nothing, names no backend, or cannot be satisfied."""


class UnmatchedError(RestrictionError):
    """A pattern that is pinned or banned, the ``value``, matches nothing."""


class PrecisionError(UserError):
    """An error that cannot be allowed, or a precision that no target computes in."""


class MemoryLimitError(UserError):
    """Nothing that was found fits into the memory that was given; ``value`` is the least."""


class OutputError(UserError):
    """A place that cannot be written."""


class LogError(UserError):
    """A benchmark log that cannot be read or written."""


class ReplayMissError(LogError):
    """A strict replay asked for a measurement that the log does not hold."""


class BundleError(UserError):
    """A folder that is no bundle, or a bundle whose requirements are not met on this machine."""


class CompileError(CollageError):
    """A native compiler or linker failed; ``value`` is its standard error."""


class CodegenError(CollageError):
    """A backend's code generator cannot compile a function that its patterns accepted."""


class UnsupportedProblemError(CollageError):
    """A library cannot run a problem as it is; the message is a predicate's reason."""


class SearchError(CollageError):
    """No partitioning covers the graph, or a partitioning breaks an invariant."""


class MeasurementError(CollageError):
    """Measuring itself failed (not a candidate: those are recorded as invalid)."""


class OutOfRangeError(MeasurementError):
    """An index outside of what it selects from: what a model was run on is wrong, not a program."""


class OutOfTimeError(CollageError):
    """The time that was asked for is spent: what was under way has been ended."""


class ProtocolError(CollageError):
    """A message between this project's processes that cannot be read: torn, of another version, or
    with a field that is unknown or of the wrong type."""


_FROM_ELSEWHERE = "Error caught from RPC call:"


def telling_line(error: BaseException) -> str:
    """The line of an error's message that says most, or its type where there is no message.

    TVM's messages begin with a stack trace and end with what went wrong; those of another machine
    begin with a line that says so.
    """
    lines = [line for line in _lines(error) if not line.endswith(_FROM_ELSEWHERE)]
    lines = lines or _lines(error)
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


def last_line(error: BaseException) -> str:
    """The last line of an error's message, or its type where there is no message."""
    return _lines(error)[-1]


def _lines(error: BaseException) -> list[str]:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines or [type(error).__name__]
