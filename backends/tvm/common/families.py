"""Families of schedules: each takes the kernels it is made for and says why it refuses others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tvm import tirx

SCHEDULE_ATTR = "collage.schedule"
"""Of a scheduled function: which family it was, and why those before it refused."""

WRITTEN_ATTR = "collage.written"
"""Of a kernel that a legalization wrote out, vectors and shared loops included."""


@dataclass(frozen=True)
class Refusal:
    """A family's "no", with the reason; no reason where the kernel is plainly of another kind.

    Examples
    --------
    >>> Refusal("its rows have 3 elements") == OTHER_KIND, OTHER_KIND
    (False, Refusal(reason=''))
    """

    reason: str


OTHER_KIND = Refusal("")

Attempt = Callable[[tirx.PrimFunc], "tirx.PrimFunc | Refusal"]
"""A family for one machine."""


def first_fitting(
    func: tirx.PrimFunc,
    attempts: Iterable[tuple[str, Attempt]],
    errors: tuple[type[Exception], ...],
) -> tuple[tirx.PrimFunc | None, list[str]]:
    """What the first family that takes a kernel makes of it, and why those before it refused.

    Parameters
    ----------
    func : tirx.PrimFunc
        The kernel.
    attempts : iterable of (str, callable)
        Names of families and what they do, the most particular ones first.
    errors : tuple of type
        By which a schedule's primitive says that it cannot be applied: a refusal like others.

    Returns
    -------
    scheduled : tirx.PrimFunc or None
        With the attribute :data:`SCHEDULE_ATTR`; None where no family takes it.
    refusals : list of str
        The reasons, each with its family's name.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((8,), "float32", name="x")
    >>> func = te.create_prim_func([x, te.compute((8,), lambda i: x[i] + 1)])
    >>> attempts = [("rows", lambda func: Refusal("it has none")), ("any", lambda func: func)]
    >>> scheduled, refusals = first_fitting(func, attempts, ())
    >>> refusals, str(scheduled.attrs[SCHEDULE_ATTR])
    (['not rows: it has none'], 'any; not rows: it has none')
    """
    refusals: list[str] = []
    for name, attempt in attempts:
        try:
            answer = attempt(func)
        except errors as err:
            answer = Refusal(_reason(err))
        if not isinstance(answer, Refusal):
            return answer.with_attr(SCHEDULE_ATTR, "; ".join([name, *refusals])), refusals
        if answer.reason:
            refusals.append(f"not {name}: {answer.reason}")
    return None, refusals


def _reason(err: Exception) -> str:
    """TVM's own words, in one line."""
    lines = [line.strip() for line in str(err).splitlines() if line.strip()]
    reason = next((line for line in lines if "rror" in line), lines[0] if lines else "")
    return reason[:200] or type(err).__name__
