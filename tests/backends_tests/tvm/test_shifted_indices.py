"""Indices that are shifted, then wrapped or divided, along two axes of one flat loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx
from tvm.relax import op

from collage.backends.contract import BuildContext
from collage.backends.tvm.common.shifted_indices import guard_shifted_indices
from tests.backends_tests.tvm import cases as tvm_cases

Divide = Callable[[Any, int], Any]


def _indices(kind: str, width: int, places: list[int], div: Divide, mod: Divide) -> Any:
    rows, columns, down, right = places
    first, second = {"wrap": (mod, mod), "moddiv": (mod, div), "divdiv": (div, div)}[kind]

    def at(i: Any) -> tuple[Any, Any]:
        return first(div(i, width) + down, rows), second(mod(i, width) + right, columns)

    return at


# What TVM alone reads from the wrong place, each of them.
@pytest.mark.parametrize(
    ("kind", "height", "width", "places"),
    [
        ("wrap", 8, 6, [4, 3, 0, 1]),
        ("wrap", 6, 12, [3, 6, 2, 2]),
        ("wrap", 11, 4, [5, 2, 0, 1]),
        ("wrap", 6, 6, [5, 2, 5, 3]),
        ("moddiv", 3, 4, [1, 2, 2, 2]),
        ("divdiv", 3, 8, [1, 3, 0, 1]),
    ],
)
def test_are_what_they_say(kind: str, height: int, width: int, places: list[int]) -> None:
    shape = (height + 9, width + 9)
    x = te.placeholder(shape, "float32", name="x")
    symbolic = _indices(kind, width, places, tirx.floordiv, tirx.floormod)
    y = te.compute((height * width,), lambda i: x(*symbolic(i)), name="y")
    func = te.create_prim_func([x, y]).with_attr("global_symbol", "read")
    read = tvm.compile(tvm.IRModule({"read": guard_shifted_indices(func)}), target="llvm")
    given = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    found = tvm.runtime.tensor(np.zeros(height * width, np.float32))
    read["read"](tvm.runtime.tensor(given), found)
    numbers = _indices(kind, width, places, lambda a, b: a // b, lambda a, b: a % b)
    expected = [given[numbers(i)] for i in range(height * width)]
    np.testing.assert_array_equal(found.numpy(), expected)


def test_what_is_not_shifted_is_left_alone() -> None:
    x = te.placeholder((2, 3), "float32", name="x")
    func = te.create_prim_func([x, te.compute((6, 9), lambda i, j: x[i % 2, (j + 3) % 3])])
    assert guard_shifted_indices(func).same_as(func)


def test_a_cut_out_of_repeated_tiles(context: BuildContext) -> None:
    def body(emit: tvm_cases.Body, x: relax.Expr) -> relax.Expr:
        return emit(op.strided_slice(emit(op.tile(x, (3, 4))), [0, 1], [1, 2], [6, 11]))

    x = np.random.default_rng().standard_normal((2, 3), np.float32)
    (found,) = tvm_cases.run(tvm_cases.partition(body, [x]), [x], context)
    np.testing.assert_array_equal(found, np.tile(x, (3, 4))[1:6, 2:11])
