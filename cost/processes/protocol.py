"""How a search and its worker processes write messages: one line of JSON each, strictly read.

Plain values and dataclasses of them cross as they are; nothing is ever unpickled. What does not
agree with the declared type in every field is a :class:`ProtocolError`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from collage.backends.contract.errors import ProtocolError
from collage.backends.storage.log_url import without_urls

PROTOCOL = 1
"""Raised whenever a message changes its meaning; both ends must have the same."""

_SHOWN = 200
"""Characters of a line that an error shows."""

T = TypeVar("T")


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one process says to another."""


class Settings(Message, frozen=True):
    """What a worker process is started with.

    Attributes
    ----------
    plugins : tuple of str
        See :mod:`collage.cost.processes.plugins`.
    session : str
        ``module:Class`` of its use of the device, see :class:`DevicePolicy`.
    has_context : bool
        Whether that holds a driver's context.
    open_device : bool
        Whether to begin to use it before the first request.
    data_limit_bytes : int or None
        What it may allocate after it has started.
    blas_threads : int or None
        Of numpy's matrix products; as many as there are cores where nobody says.
    """

    plugins: tuple[str, ...]
    session: str
    has_context: bool
    open_device: bool
    data_limit_bytes: int | None
    blas_threads: int | None
    protocol: int = PROTOCOL


class Ready(Message, frozen=True, tag="ready"):
    """A worker's first line: it waits for requests."""

    protocol: int = PROTOCOL


class NotReady(Message, frozen=True, tag="not_ready"):
    """A worker's first and last line: it cannot start."""

    reason: str
    protocol: int = PROTOCOL


def encode(message: Message) -> bytes:
    """One line, without its end.

    Infinite numbers are written as Python's ``json`` does: data of a workload may have no bound.
    """
    return json.dumps(_plain(message)).encode()


def decode(line: bytes, kind: type[T] | Any) -> T:
    """The message on a line.

    Parameters
    ----------
    line : bytes
        From :func:`encode`.
    kind : type
        A message type, or a union of tagged ones.

    Returns
    -------
    T
        Of the kind that was asked for, all of it checked.

    Raises
    ------
    ProtocolError
        When it is torn, or is no such message.
    """
    try:
        value = json.loads(line)
        message: T = msgspec.convert(value, kind, dec_hook=_decode_path)
        _refuse_unknown(value, _plain(message))
    except (ValueError, RecursionError, msgspec.MsgspecError) as err:
        # The URL of a log may hold a password.
        shown, reason = (
            " ".join(without_urls(text).split())
            for text in (line.decode(errors="replace"), str(err))
        )
        shown = shown[:_SHOWN]
        raise ProtocolError(f"cannot read the message '{shown}': {reason}", value=line) from err
    return message


def decode_handshake(line: bytes, kind: type[T] | Any) -> T:
    """As :func:`decode`, of what begins a conversation and has the version of who says it.

    Parameters
    ----------
    line : bytes
        From :func:`encode`.
    kind : type
        A message type that has a ``protocol``, or a union of them.

    Returns
    -------
    T
        Of the kind that was asked for; its version is this process's.

    Raises
    ------
    ProtocolError
        When it is torn, of another version, or no such message.
    """
    fields: dict[str, Any] = decode(line, dict[str, Any])
    version = fields.get("protocol")
    if version != PROTOCOL:
        raise ProtocolError(
            f"a worker process and its search speak versions {version} and {PROTOCOL} of the "
            "protocol: two installations are mixed",
            value=version,
        )
    message: T = decode(line, kind)
    return message


def _plain(message: object) -> Any:
    return msgspec.to_builtins(message, enc_hook=_encode_other)


def _encode_other(value: object) -> str:
    if isinstance(value, Path | str):
        return str.__str__(str(value))  # TVM's strings are of a class of their own.
    raise NotImplementedError(f"{type(value).__name__} does not cross between processes")


def _decode_path(kind: type, value: object) -> object:
    if issubclass(kind, Path) and isinstance(value, str):
        return kind(value)
    raise ValueError(f"{value!r} is no {kind.__name__}")


def _refuse_unknown(given: Any, taken: Any) -> None:
    """Raise for what the reader left out: msgspec passes over unknown fields of dataclasses."""
    if isinstance(given, dict):
        for name, value in given.items():
            if name not in taken:
                raise ValueError(f"unknown field '{name}'")
            _refuse_unknown(value, taken[name])
    elif isinstance(given, list):
        for value, other in zip(given, taken, strict=True):
            _refuse_unknown(value, other)
