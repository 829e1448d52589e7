"""Families of schedules: each takes the kernels it is made for and says why it refuses others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tvm import tirx

SCHEDULE_ATTR = "collage.schedule"
"""Of a scheduled function: which family it was, and why those before it refused."""


@dataclass(frozen=True)
class Refusal:
    """A family's "no", with the reason; no reason where the kernel is plainly of another kind."""

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
