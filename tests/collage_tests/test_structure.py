"""Tensors in dicts, tuples and such: taken apart, put together, and written down."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from collage.backends.contract.errors import InputError
from collage.structure import Fields, Fixed, Items, Leaf, Signature

Pair = namedtuple("Pair", "left right")

NESTED = Fields(
    "dict",
    ("a", 7, "pair"),
    (
        Items("list", (Leaf(3), Fixed(None), Items("tuple", ()))),
        Leaf(1),
        Fields("named_tuple", ("left", "right"), (Leaf(0), Fixed("text")), "Pair"),
    ),
)
SIGNATURE = Signature(
    names=("x", "batch", "flag"),
    parameters=(Leaf(2), NESTED, Fixed(True)),
    result=NESTED,
)
BATCH = {"a": ["d", None, ()], 7: "b", "pair": Pair("a", "text")}


def test_what_is_taken_apart_is_put_together() -> None:
    tensors = SIGNATURE.arguments(["c", BATCH], {"flag": True})
    assert tensors == ["a", "b", "c", "d"]
    given = SIGNATURE.returned(tensors)
    assert given == BATCH and type(given["a"]) is list
    assert given["pair"].left == "a" and type(given["pair"]).__name__ == "Pair"


def test_is_the_same_when_read_from_a_file() -> None:
    assert msgspec.json.decode(msgspec.json.encode(SIGNATURE), type=Signature) == SIGNATURE


@pytest.mark.parametrize(
    "batch",
    [
        OrderedDict(reversed(list(BATCH.items()))),
        {**BATCH, "a": ("d", None, [])},
        {**BATCH, "pair": {"left": "a", "right": "text"}},
        {**BATCH, "pair": SimpleNamespace(left="a", right="text")},
    ],
)
def test_other_kinds_that_hold_the_same_are_taken(batch: Any) -> None:
    assert SIGNATURE.arguments([], {"batch": batch, "x": "c"}) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        (["c"], {}, "input 'batch' is missing; the model takes x, batch, flag"),
        (["c", BATCH, True, 1], {}, "4 inputs given; the model takes x, batch, flag"),
        (["c", BATCH], {"x": "c"}, "input 'x' is given twice"),
        (["c"], {"batches": BATCH}, "unknown input 'batches'; the model takes"),
        (["c", [1]], {}, "input 'batch' must be a dict with a, 7, pair, not a list of 1"),
        (["c", {**BATCH, "a": 1}], {}, "input 'batch.a' must be a list of 3, not 1"),
        (["c", {**BATCH, "a": ["d", None]}], {}, "'batch.a' must be a list of 3, not a list of 2"),
        (["c", {**BATCH, "a": ["d", 0, ()]}], {}, r"'batch.a.1' is None ever since .*, not 0"),
        (
            ["c", {"a": ["d", None, ()]}],
            {},
            "'batch.7' is missing: 'batch' has the keys a, 7",
        ),
        (["c", {**BATCH, "b": 1}], {}, "input 'batch' has the keys a, 7, pair, and no 'b'"),
        (
            ["c", {**BATCH, "pair": ("a", "text")}],
            {},
            "'batch.pair' must be a named tuple with",
        ),
        (["c", BATCH, 1], {}, "input 'flag' is True ever since the model was exported, not 1"),
    ],
)
def test_a_wrong_call_says_where(args: list[Any], named: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SIGNATURE.arguments(args, named)


@pytest.mark.parametrize(
    ("result", "names"),
    [
        (Leaf(0), ["output_0"]),
        (Items("tuple", (Leaf(0), Fixed(None), Leaf(1))), ["output_0", "output_2"]),
        (NESTED, ["pair.left", "output_7", "", "a.0"]),
        (
            Fields(
                "dict",
                ("a", "a.b"),
                (Fields("dict", ("b",), (Leaf(1),)), Items("list", (Leaf(0),))),
            ),
            ["a.b.0", "a.b"],
        ),
        (
            Fields("dict", ("a", "a.b"), (Fields("dict", ("b",), (Leaf(0),)), Leaf(1))),
            ["a.b", "a.b_1"],
        ),
    ],
)
def test_names_tell_results_apart(result: Any, names: list[str]) -> None:
    signature = Signature(names=(), parameters=(), result=result)
    assert signature.output_names() == [name for name in names if name]
