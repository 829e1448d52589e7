"""Operators that numpy has no implementation of are compiled by TVM, once and alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te

from collage.cost.reference import sample_of
from collage.cost.reference.fallback import Compiled

SHAPE = (3, 4)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tvm.IRModule]]:
    """The modules that are compiled while a test runs."""
    seen: list[tvm.IRModule] = []
    inner = tvm.compile

    def compile_(module: tvm.IRModule, *args: Any, **kwargs: Any) -> Any:
        seen.append(module)
        return inner(module, *args, **kwargs)

    monkeypatch.setattr(tvm, "compile", compile_)
    yield seen


def _two_programs_and_a_sort() -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit_te(_scaled, x, 2.0)
            value = builder.emit_te(_scaled, value, -3.0)
            value = builder.emit_output(relax.op.sort(value, axis=1))
        builder.emit_func_output(value)
    return builder.finalize()


def _scaled(data: te.Tensor, scale: float) -> te.Tensor:
    return te.compute(SHAPE, lambda i, j: data[i, j] * scale)


def test_what_rounding_does_is_asked_without_compiling_again(
    compiled: list[tvm.IRModule],
) -> None:
    """A network's tensor programs were compiled again for each of its operators that numpy lacks,
    in each evaluation: five hundred operators took the reference twelve seconds."""
    array = np.arange(12, dtype=np.float32).reshape(SHAPE)
    sample = sample_of(_two_programs_and_a_sort(), [array])
    np.testing.assert_array_equal(sample.expected[0], np.sort(array * -6.0, axis=1))
    programs = [
        sum(isinstance(f, tvm.tirx.PrimFunc) for f in m.functions.values()) for m in compiled
    ]
    assert sorted(programs) == [0, 1, 1]


def test_a_compiled_call_takes_other_values(compiled: list[tvm.IRModule]) -> None:
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    call, calls = relax.op.sort(x, axis=1), Compiled(None)
    for array in np.random.default_rng(5).standard_normal((3, *SHAPE), np.float32):
        np.testing.assert_array_equal(calls.evaluate(call, [array]), np.sort(array, axis=1))
    assert len(compiled) == 1
