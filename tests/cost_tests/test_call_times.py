"""Calls inside a model, told by an instrument of the virtual machine's."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from collage.cost.call_times import time_calls


def deciding() -> relax.VirtualMachine:
    """A model that squares where its first input says so, and else takes a logarithm and a sine."""
    builder = relax.BlockBuilder()
    decides = relax.Var("decides", relax.TensorType((), "bool"))
    x = relax.Var("x", relax.TensorType((64,), "float32"))
    with builder.function("main", [decides, x]):
        square = relax.SeqExpr([], builder.normalize(relax.op.square(x)))
        other = relax.SeqExpr([], builder.normalize(relax.op.sin(relax.op.log(x))))
        builder.emit_func_output(builder.emit(relax.If(decides, square, other)))
    return relax.VirtualMachine(tvm.compile(builder.get(), "llvm").jit(), tvm.cpu())


def test_the_same_calls_each_time_are_timed() -> None:
    machine = deciding()
    inputs = [tvm.runtime.tensor(np.array(False)), tvm.runtime.tensor(np.ones(64, "float32"))]
    function = machine["main"]
    calls = time_calls(machine, lambda: function(*inputs), tvm.cpu(), repeat=4, warmup=1)
    assert [call.symbol.removeprefix("tir_") for call in calls] == ["log", "sin"]
    assert all(call.median_sec > 0.0 and call.bytes == 2 * 64 * 4 for call in calls)


def test_a_model_that_does_not_make_the_same_calls_is_not_taken_apart() -> None:
    machine = deciding()
    x = tvm.runtime.tensor(np.ones(64, "float32"))
    decisions = iter([True, False, True, False])
    function = machine["main"]

    def call() -> object:
        return function(tvm.runtime.tensor(np.array(next(decisions))), x)

    assert time_calls(machine, call, tvm.cpu(), repeat=4, warmup=0) == ()
