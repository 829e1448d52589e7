"""Fields of a record's line, each held to what it may be: anyone may have written the line."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from collage.cost.base import Clocks, Cost, CostStatus
from collage.cost.call_times import CallTime
from collage.cost.contest import Rounds


def cost_of(reader: FieldReader) -> Cost:
    """The cost in a record's line.

    Raises
    ------
    ValueError
        Says what is wrong with it.
    """
    try:
        status = CostStatus(reader.text("status"))
    except ValueError as err:
        raise ValueError(f"has an unknown status ({err})") from err
    if status is not CostStatus.VALID:
        return Cost(status, reason=reader.text("reason"))
    samples = reader.get("samples_sec", list)
    if not all(isinstance(sample, float | int) for sample in samples):
        raise ValueError("has samples that are no numbers")
    median_sec, spread_sec = reader.number("median_sec"), reader.number("spread_sec")
    others = reader.number("others") if reader.has("others") else 0.0
    if not 0.0 <= others <= 1.0:
        raise ValueError("has no valid 'others'")
    found = tuple(map(float, samples))
    return Cost(status, median_sec, spread_sec, found, others=others)


def clocks_of(value: dict[str, Any]) -> Clocks | None:
    """Clocks of the device; logs of earlier releases, and of CPUs, have none."""
    sm, memory = value.get("sm_clock_mhz"), value.get("memory_clock_mhz")
    return Clocks(sm, memory) if isinstance(sm, int) and isinstance(memory, int) else None


def rounds_of(value: dict[str, Any]) -> Rounds | None:
    """Rounds that it was timed in beside others; None where it was timed alone.

    Raises
    ------
    ValueError
        Says what is wrong with it.
    """
    if value.get("rounds") is None:
        return None
    try:
        rounds = msgspec.convert(value["rounds"], Rounds)
    except msgspec.ValidationError as err:
        raise ValueError(f"has no valid 'rounds' ({err})") from err
    numbers = range(len(rounds.seconds))
    if any(sec is not None and not 0 < sec < math.inf for sec in rounds.seconds):
        raise ValueError("has rounds that took no time")
    if not all(number in numbers for number in (*rounds.disturbed, *rounds.discarded)):
        raise ValueError("has disturbed rounds that were none")
    return rounds


def calls_of(value: dict[str, Any]) -> tuple[CallTime, ...]:
    """Calls inside a whole model; none where they were not seen.

    Raises
    ------
    ValueError
        Says what is wrong with it.
    """
    try:
        calls = msgspec.convert(value.get("calls", []), tuple[CallTime, ...])
    except msgspec.ValidationError as err:
        raise ValueError(f"has no valid 'calls' ({err})") from err
    if any(not 0 <= call.median_sec < math.inf for call in calls):
        raise ValueError("has calls that took no time")
    return calls


class FieldReader:
    """Typed access to an object that anyone may have written.

    Parameters
    ----------
    value : dict
        The object.
    """

    def __init__(self, value: dict[str, Any]) -> None:
        self._value = value

    def get(self, name: str, *kinds: type) -> Any:
        """The value of a field.

        Parameters
        ----------
        name : str
            Of the field.
        kinds : type
            That it may have.

        Returns
        -------
        object
            Of one of the kinds.

        Raises
        ------
        ValueError
            When it is of none of them, or not there.
        """
        found = self._value.get(name)
        if not isinstance(found, kinds) or isinstance(found, bool):
            raise ValueError(f"has no valid '{name}'")
        return found

    def has(self, name: str) -> bool:
        """Whether there is such a field."""
        return name in self._value

    def text(self, name: str) -> str:
        """A field of text; raises as :meth:`get`."""
        return str(self.get(name, str))

    def texts(self, name: str) -> dict[str, str]:
        """A field of texts by name.

        Parameters
        ----------
        name : str
            Of the field.

        Returns
        -------
        dict of str to str
            In the order in which they were written.

        Raises
        ------
        ValueError
            When it is none, or something in it is no text.
        """
        found: dict[str, str] = self.get(name, dict)
        if not all(isinstance(text, str) for text in found.values()):
            raise ValueError(f"has no valid '{name}'")
        return found

    def number(self, name: str) -> float:
        """A field that is a number; raises as :meth:`get`."""
        return float(self.get(name, int, float))
