"""Messages of protocol buffers whose bytes are right and whose fields are not."""

from __future__ import annotations

import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_WHOLE = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}

_Place = tuple[Message, FieldDescriptor]


def mutated_fields(message: Message, rng: random.Random, names: tuple[str, ...]) -> None:
    """Change one to four fields of a message, or of what it holds.

    Parameters
    ----------
    message : Message
        Changed in place.
    rng : random.Random
        Draws the changes.
    names : tuple of str
        What texts are replaced with, besides others of the message.
    """
    for _ in range(rng.randint(1, 4)):
        places = _places(message)
        texts = [*names, *(text for place in places for text in _texts(*place))]
        kinds = {field.full_name for _, field in places}
        # First a field, then a place: else everything is in what there is most of.
        chosen = rng.choice(sorted(kinds))
        holder, field = rng.choice([p for p in places if p[1].full_name == chosen])
        _change(holder, field, rng, texts)


def _places(message: Message) -> list[_Place]:
    found: list[_Place] = []
    stack = [message]
    while stack:
        holder = stack.pop()
        for field, value in holder.ListFields():
            found.append((holder, field))
            if field.type == field.TYPE_MESSAGE:
                stack += value if field.is_repeated else [value]
    return found


def _texts(holder: Message, field: FieldDescriptor) -> list[str]:
    if field.type != field.TYPE_STRING:
        return []
    value = getattr(holder, field.name)
    return list(value) if field.is_repeated else [value]


def _change(holder: Message, field: FieldDescriptor, rng: random.Random, texts: list[str]) -> None:
    kind = rng.randrange(6)
    value = getattr(holder, field.name)
    if not field.is_repeated:
        if kind == 0 or field.type == field.TYPE_MESSAGE:
            holder.ClearField(field.name)
        else:
            setattr(holder, field.name, _drawn(field, value, rng, texts))
        return
    at = rng.randrange(len(value))
    if kind == 0:
        del value[at]
    elif kind == 1:
        value.append(value[at])
    elif kind == 2:
        items = [value[n] for n in rng.sample(range(len(value)), len(value))]
        copies = (
            [type(one).FromString(one.SerializeToString()) for one in items]
            if (field.type == field.TYPE_MESSAGE)
            else items
        )
        del value[:]
        value.extend(copies)
    elif field.type == field.TYPE_MESSAGE:
        value[at].CopyFrom(rng.choice(value))
    else:
        value[at] = _drawn(field, value[at], rng, texts)


def _drawn(field: FieldDescriptor, value: Any, rng: random.Random, texts: list[str]) -> Any:
    if field.type == field.TYPE_STRING:
        return rng.choice(texts)
    if field.type == field.TYPE_BYTES:
        return value[: rng.randrange(len(value) + 1)]
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return rng.choice((0.0, -1.0, 1e30, float("inf"), float("nan")))
    if field.type == field.TYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    least, most = _WHOLE[field.type]
    small = (-2, -1, 0, 1, 2, 3, 5, 7, 100)
    return min(max(rng.choice((*small, *small, least, most, value + 1, value - 1)), least), most)
