"""Files that were cut, flipped, overwritten and put together wrongly; the same ones for a seed."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

_STRANGE: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**31, 2**63, 2**70, 1e308, float("inf"), float("nan")),
    *("", "x" * 5000, "\x00", "../../../etc/passwd", "é" * 10, [], {}, [[]], {"": None}),
)


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Content with one to four changes.

    Parameters
    ----------
    content : bytes
        What is right.
    rng : random.Random
        Draws the changes.

    Returns
    -------
    bytes
        Usually wrong.
    """
    found = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        if not found:
            break
        at = rng.randrange(len(found))
        length = min(len(found) - at, 1 << rng.randrange(8))
        kind = rng.randrange(7)
        if kind == 0:
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            found[at : at + length] = rng.randbytes(length)
        elif kind == 2:
            del found[at : at + length]
        elif kind == 3:
            found[at:at] = rng.randbytes(length)
        elif kind == 4:
            found[at:at] = found[at : at + length]
        elif kind == 5:
            del found[at:]
        else:
            found[at : at + length] = bytes([rng.choice((0, 255, 127, 128))]) * length
    return bytes(found)


def mutated_json(content: bytes, rng: random.Random) -> bytes:
    """A JSON text with one to three of its values replaced, left out, or nested without end.

    Parameters
    ----------
    content : bytes
        One object.
    rng : random.Random
        Draws the changes; every second time they are those of :func:`mutated`.
    """
    if rng.random() < 0.5:
        return mutated(content, rng)
    value = json.loads(content)
    for _ in range(rng.randint(1, 3)):
        holder, key = _place(value, rng)
        if holder is None:
            break
        kind = rng.randrange(8)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[rng.choice(("", "new", "schema", "kind"))] = deepcopy(rng.choice(_STRANGE))
        else:
            holder[key] = deepcopy(rng.choice(_STRANGE))
    text = json.dumps(value)
    if rng.random() < 0.05:
        depth = rng.choice((100, 5000, 100_000))
        text = text[:-1] + ', "deep": ' + "[" * depth + "]" * depth + "}"
    return text.encode()


def _place(value: Any, rng: random.Random) -> tuple[Any, Any]:
    """A container inside a value and one of its keys, however deep."""
    places: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        item = stack.pop()
        keys = item.keys() if isinstance(item, dict) else range(len(item))
        for key in keys:
            places.append((item, key))
            if isinstance(item[key], dict | list):
                stack.append(item[key])
    return rng.choice(places) if places else (None, None)
