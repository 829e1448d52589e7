"""Frozen dataclasses of plain values, from what ``json`` reads."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def decode(cls: type[T], value: Any) -> T:
    """The dataclass that decoded JSON describes, every field's type checked.

    Parameters
    ----------
    cls : type
        A dataclass of plain values, lists, dictionaries and other such dataclasses.
    value : object
        What ``json`` read.

    Returns
    -------
    T
        An instance of that class.

    Raises
    ------
    msgspec.ValidationError
        A field is missing, unknown, or of another type; the message names it.
    """
    found = msgspec.convert(value, cls)
    # Of dataclasses msgspec passes over fields that it does not know.
    _require_known(value, msgspec.to_builtins(found), cls.__name__)
    return found


def _require_known(given: Any, known: Any, where: str) -> None:
    if isinstance(given, dict):
        for key, item in given.items():
            if key not in known:
                raise msgspec.ValidationError(f"{where} has an unknown field '{key}'")
            _require_known(item, known[key], f"{where}.{key}")
    elif isinstance(given, list):
        for index, item in enumerate(given):
            _require_known(item, known[index], f"{where}[{index}]")
