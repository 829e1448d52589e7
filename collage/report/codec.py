"""Frozen dataclasses of plain values, to and from what ``json`` reads and writes."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from typing import Any, TypeVar

T = TypeVar("T")


def encode(value: Any) -> Any:
    """``value`` with every number that JSON cannot write (infinity, not-a-number) as None."""
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


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
    cls

    Raises
    ------
    TypeError
        A field is missing, unknown, or of another type; the message names it.
    """
    return typing.cast(T, _decode(cls, value, cls.__name__))


def _decode(wanted: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(wanted):
        return _decode_dataclass(wanted, value, where)
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (a for a in arguments if a is not types.NoneType)
        return None if value is None else _decode(inner, value, where)
    if origin is list:
        items = _check(value, list, where)
        return [_decode(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(items)]
    if origin is dict:
        items = _check(value, dict, where)
        return {key: _decode(arguments[1], item, f"{where}.{key}") for key, item in items.items()}
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if wanted is int and isinstance(value, bool):
        raise TypeError(f"{where} must be int, not bool")
    return _check(value, wanted, where)


def _decode_dataclass(wanted: Any, value: Any, where: str) -> Any:
    _check(value, dict, where)
    hints = typing.get_type_hints(wanted)
    unknown = sorted(set(value) - set(hints))
    if unknown:
        raise TypeError(f"{where} has an unknown field '{unknown[0]}'")
    decoded = {
        name: _decode(hint, value[name], f"{where}.{name}")
        for name, hint in hints.items()
        if name in value
    }
    try:
        return wanted(**decoded)
    except TypeError as err:
        raise TypeError(f"{where}: {err}") from err


def _check(value: Any, wanted: type, where: str) -> Any:
    if not isinstance(value, wanted):
        raise TypeError(f"{where} must be {wanted.__name__}, not {type(value).__name__}")
    return value
