"""A target's attributes turned into a backend's options, with errors that name the valid ones."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from collage.backends.contract.errors import TargetError


@dataclass(frozen=True)
class NoOptions:
    """Options of a backend that has none."""


def parse_options(target: str, options_type: type, attributes: Mapping[str, Any]) -> Any:
    """Turn the attributes of the target named ``target`` into an ``options_type``.

    Parameters
    ----------
    target : str
        The name that errors call the target by.
    options_type : type
        A frozen dataclass whose fields are of bool, int, float, str, None, ``Literal`` or a union
        of these; it raises ValueError for a value of the right type that makes no sense.
    attributes : mapping of str to Any
        As the user gave them; what is missing takes its default.

    Returns
    -------
    object
        An instance of ``options_type``.

    Raises
    ------
    TargetError
        On an unknown attribute (the valid ones are listed) or a value of the wrong type.
    """
    fields = {f.name for f in dataclasses.fields(options_type)}
    types_of = get_type_hints(options_type)
    valid = ", ".join(sorted(fields)) or "none"
    for name, value in attributes.items():
        if name not in fields:
            raise TargetError(
                f"target '{target}' has no attribute '{name}'; valid attributes: {valid}",
                value=name,
            )
        wanted = types_of[name]
        if not _has_type(value, wanted):
            raise TargetError(
                f"attribute '{name}' of target '{target}' must be {_type_name(wanted)}, "
                f"not {type(value).__name__} {value!r}",
                value=value,
            )
    try:
        return options_type(**attributes)
    except ValueError as err:
        raise TargetError(f"target '{target}': {err}", value=dict(attributes)) from err


def _has_type(value: object, wanted: Any) -> bool:
    """Whether ``value`` fits a type made of bool, int, float, str, None, Literal and unions."""
    if get_origin(wanted) in (Union, types.UnionType):
        return any(_has_type(value, part) for part in get_args(wanted))
    if get_origin(wanted) is Literal:
        return value in get_args(wanted)
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return wanted in (bool, str, types.NoneType) and isinstance(value, wanted)


def _type_name(wanted: Any) -> str:
    """A type as a user would write it."""
    if get_origin(wanted) is Literal:
        return "one of " + ", ".join(map(repr, get_args(wanted)))
    return wanted.__name__ if isinstance(wanted, type) else str(wanted)
