"""The recurrent operator: its program for any way to cut it, and the steps written out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from collage.backends.relax.recurrent import DIRECTIONS, GATES, NAME, Recurrence, recurrent
from collage.backends.relax.recurrent.blocking import Blocking
from collage.backends.relax.recurrent.program import legalize, legalize_plainly
from collage.backends.tvm.common.machine import Machine
from collage.backends.tvm.cpu.fast_math import use_fast_math
from collage.backends.tvm.cpu.recurrent import blocking
from collage.cost.reference.arithmetic import Arithmetic
from collage.cost.reference.evaluator import evaluate
from collage.passes import write_out_recurrent
from collage.rewrite import flat_bindings, op_name

_EXACTLY = Arithmetic(float32_in="float64")


def operands(one: Recurrence) -> list[np.ndarray]:
    rng, directions = np.random.default_rng(), len(one.backwards)
    width, state = one.gates * one.hidden, (directions, one.batch, one.hidden)
    shapes = [(one.steps, one.batch, directions * width), (directions, one.hidden, width), state]
    shapes += [state] * (one.states == 2) + [(directions, one.hidden)] * one.has_bias
    scales = [1.0, 1 / np.sqrt(one.hidden)] + [0.5] * 4
    arrays = [
        (rng.uniform(-1, 1, shape) * scale).astype(one.dtype)
        for shape, scale in zip(shapes, scales, strict=False)
    ]
    if one.has_lengths:
        arrays.append(rng.integers(0, one.steps + 1, one.batch).astype("int32"))
    return arrays


def module(one: Recurrence, arrays: Sequence[np.ndarray]) -> tvm.IRModule:
    """A call, its weights constant; the other operands are parameters."""
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"p{i}", relax.TensorType(a.shape, str(a.dtype))) for i, a in enumerate(arrays)
    ]
    given = list(params)
    given[1] = relax.const(arrays[1], one.dtype)
    params.pop(1)
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(
                builder.emit(recurrent(one.cell, one.direction, given, one.stepped))
            )
        builder.emit_func_output(result)
    return builder.get()


def run(mod: tvm.IRModule, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    executable = tvm.compile(mod, tvm.target.Target({"kind": "llvm"}))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    tensors = [tvm.runtime.tensor(a) for i, a in enumerate(arrays) if i != 1]
    return [found.numpy() for found in machine["main"](*tensors)]


def check(one: Recurrence, how: Blocking | None) -> None:
    arrays = operands(one)
    mod = module(one, arrays)
    wanted = evaluate(mod, [a for i, a in enumerate(arrays) if i != 1], _EXACTLY)
    legal = {NAME: legalize_plainly if how is None else lambda b, c: legalize(b, c, how)}
    mod = relax.transform.LegalizeOps(legal)(mod)
    for var, function in mod.functions.items():
        if isinstance(function, tvm.tirx.PrimFunc):
            mod.update_func(var, use_fast_math(function))
    # States stay within 1, or grow by at most 2 a step; halves are kept in float32 between steps.
    bound = {"float32": 1e-5, "float64": 1e-5, "float16": 4e-3}[one.dtype]
    for found, expected in zip(run(mod, arrays), wanted, strict=True):
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        assert np.abs(found - expected).max(initial=0) <= bound * scale


@pytest.mark.parametrize("cell", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_cell_in_every_direction(cell: str, direction: str) -> None:
    one = Recurrence(cell, direction, 5, 3, 37, "float32", True)
    check(one, blocking(one, Machine(vector_bytes=64, num_registers=32, num_threads=2)))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_element_types(dtype: str) -> None:
    check(Recurrence("lstm", "forward", 4, 2, 9, dtype, False), None)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_way_to_cut_it(data: st.DataObject) -> None:
    one = Recurrence(
        data.draw(st.sampled_from(sorted(GATES))),
        data.draw(st.sampled_from(sorted(DIRECTIONS))),
        data.draw(st.integers(1, 4)),
        data.draw(st.integers(1, 7)),
        data.draw(st.integers(1, 40)),
        "float32",
        data.draw(st.booleans()),
    )
    how = Blocking(
        data.draw(st.integers(1, one.hidden)),
        data.draw(st.integers(1, one.batch)),
        packed=data.draw(st.booleans()),
        shared_steps=data.draw(st.booleans()),
    )
    check(one, how)


@given(
    vector=st.sampled_from([16, 32, 64]),
    threads=st.integers(1, 64),
    cell=st.sampled_from(sorted(GATES)),
    batch=st.integers(1, 100),
    hidden=st.integers(1, 2000),
)
def test_blocks_fit_what_they_cut(
    vector: int, threads: int, cell: str, batch: int, hidden: int
) -> None:
    machine = Machine(vector_bytes=vector, num_registers=16, num_threads=threads)
    one = Recurrence(cell, "forward", 10, batch, hidden, "float32", False)
    how = blocking(one, machine)
    assert 1 <= how.rows <= batch
    assert 1 <= how.columns <= hidden
    lanes = machine.lanes("float32")
    # Without those that spill there is room for the sums.
    assert how.rows * one.gates * -(-how.columns // lanes) <= 16


@pytest.mark.parametrize("cell", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_steps_written_out_are_the_same(cell: str, direction: str) -> None:
    one = Recurrence(cell, direction, 3, 2, 5, "float32", True)
    arrays = operands(one)
    mod = module(one, arrays)
    given = [a for i, a in enumerate(arrays) if i != 1]
    written = write_out_recurrent(mod)
    assert NAME not in {op_name(value) for _, value in flat_bindings(written["main"])}
    pairs = zip(evaluate(written, given, _EXACTLY), evaluate(mod, given, _EXACTLY), strict=True)
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("batch", "hidden"), [(1, 5), (3, 37), (20, 9)])
def test_states_in_steps(batch: int, hidden: int) -> None:
    """A value half-way between two steps may go to either; with one step only the input decides."""
    one = Recurrence("lstm", "bidirectional", 1, batch, hidden, "float32", False, stepped=True)
    arrays = operands(one)
    # Whole multiples of a step, and both ends of the range.
    state = np.random.default_rng().integers(-100, 101, arrays[2].shape)
    state[:, 0, :2] = [-100, 155]
    arrays[2] = (state / np.float32(255)).astype("float32")
    mod = module(one, arrays)
    given = [a for i, a in enumerate(arrays) if i != 1]
    how = blocking(one, Machine(vector_bytes=64, num_registers=32, num_threads=2))
    wanted = evaluate(mod, given, _EXACTLY)
    found = [evaluate(write_out_recurrent(mod), given, _EXACTLY)]
    for cut in (how, replace(how, shared_steps=True)):
        legal = {NAME: lambda b, c, cut=cut: legalize(b, c, cut)}
        found.append(run(relax.transform.LegalizeOps(legal)(mod), arrays))
    for results in found:
        for result, expected in zip(results, wanted, strict=True):
            np.testing.assert_allclose(result, expected, atol=1e-5)


def test_a_module_is_the_same_after_it_was_saved() -> None:
    one = Recurrence("lstm", "bidirectional", 3, 2, 5, "float32", False, stepped=True)
    mod = module(one, operands(one))
    again = tvm.ir.load_json(tvm.ir.save_json(mod))
    tvm.ir.assert_structural_equal(again, mod)
    call = again["main"].body.blocks[0].bindings[0].value
    assert Recurrence.of(call) == one
