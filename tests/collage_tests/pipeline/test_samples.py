"""What models are run on: drawn inputs keep a network at work, given ones are taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.contract.errors import InputError, ReplayMissError
from collage.backends.devices import CPU
from collage.cli.terminal.samples import read_sample
from collage.cost.deadline import Deadline
from collage.cost.reference import evaluate
from collage.pipeline import import_model
from collage.pipeline.inputs.drawing import Draw, draw_inputs, drawn_sample
from collage.pipeline.inputs.samples import digest, given_arrays, samples_of
from collage.pipeline.inputs.working_range import Range
from collage.tensor_info import TensorInfo
from collage.testing import graph

Emit = Callable[[relax.Expr], relax.Var]
RNG = np.random.default_rng(11)


def vanishing(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Gates that shrink what they let through, as squeeze-excitation and swish do with random
    weights: outputs of noise end among float16's denormal numbers."""
    for _ in range(4):
        gate = emit(op.sigmoid(emit(op.mean(x, axis=[2, 3], keepdims=True))))
        x = emit(op.nn.silu(emit(op.multiply(x, gate))))
    return op.multiply(x, relax.const(np.float16(2e-5)))


def test_a_network_whose_outputs_vanish_gets_larger_inputs() -> None:
    mod = graph([(1, 8, 12, 12)], vanishing, dtype="float16")
    info = [TensorInfo((1, 8, 12, 12), "float16", "x0")]
    sample, remarks = drawn_sample(mod, info, 0, "float32")
    assert np.abs(sample.expected[0].astype(np.float32)).max() > 2e-5
    (remark,) = remarks
    assert "of deviation" in remark
    found = samples_of(mod, info, None, 0)
    assert found.remarks == remarks and 0 < found.rounding < 0.01


def test_a_network_that_overflows_gets_smaller_inputs() -> None:
    mod = graph(
        [(64, 64)],
        lambda emit, x: op.sqrt(emit(op.sum(emit(op.power(x, twelve())), axis=1))),
        dtype="float16",
    )
    sample, remarks = drawn_sample(mod, [TensorInfo((64, 64), "float16", "x0")], 0, "float32")
    assert sample.is_finite and not sample.noise[0].overflow
    assert "deviation 0.25" in remarks[0] and "overflow in float16" in remarks[0]


def twelve() -> relax.Expr:
    return relax.const(12.0, "float16")


def test_a_network_that_works_on_noise_gets_noise() -> None:
    mod = graph([(4, 8)], lambda _, x: op.exp(x))
    info = [TensorInfo((4, 8), "float32", "x0")]
    sample, remarks = drawn_sample(mod, info, 3, "float32")
    assert remarks == ()
    assert np.array_equal(sample.inputs[0], draw_inputs(mod, info, 3)[0])


def test_indices_are_drawn_from_all_of_a_table() -> None:
    table = relax.const(RNG.standard_normal((500, 8)).astype("float32"))
    mod = graph([(64,)], lambda _, x: op.take(table, x, axis=0), dtype="int64")
    (ids,) = import_model(mod, CPU).random_inputs(0)
    assert ids.min() >= 0 and 300 < ids.max() < 500


def test_a_mask_of_which_nothing_is_left_becomes_ones() -> None:
    def masked(emit: Emit, x: relax.Expr) -> relax.Expr:
        allowed = emit(op.astype(x, "bool"))
        nothing, zero = (relax.const(np.float32(v)) for v in (-np.inf, 0.0))
        return op.nn.softmax(emit(op.where(allowed, zero, nothing)))

    mod = graph([(200, 2)], masked, dtype="int64")
    sample, remarks = drawn_sample(mod, [TensorInfo((200, 2), "int64", "x0")], 0, "float32")
    assert sample.is_finite and np.all(sample.inputs[0] == 1)
    assert "masks of ones" in remarks[0] and "no numbers" in remarks[0]


def test_photographs_are_smooth_and_keep_their_deviation() -> None:
    mod = graph([(1, 3, 64, 64)], lambda _, x: op.exp(x))
    info = [TensorInfo((1, 3, 64, 64), "float32", "x0")]
    (picture,) = draw_inputs(mod, info, 0, Draw(2.0, smooth=True))
    steps = np.diff(picture, axis=-1)
    assert abs(picture.std() - 2.0) < 1e-3 and steps.std() < picture.std()


def test_a_chaotic_network_is_called_so_in_float32_too() -> None:
    def doubling(emit: Emit, x: relax.Expr) -> relax.Expr:
        x = emit(op.tanh(x))
        for _ in range(30):
            x = emit(op.multiply(emit(op.multiply(x, x)), relax.const(2.0)))
            x = emit(op.subtract(x, relax.const(1.0)))
        return x

    mod = graph([(3000,)], doubling)
    found = samples_of(mod, [TensorInfo((3000,), "float32", "x0")], None, 0)
    assert any("even in float32" in remark for remark in found.remarks)


def test_given_inputs_are_checked(tmp_path: Path) -> None:
    mod = graph([(2, 3)], lambda _, x: op.exp(x))
    info = [TensorInfo((2, 3), "float32", "x0")]
    x = np.ones((2, 3), np.float32)
    given = given_arrays(info, [{"x0": x}, {"x0": 2 * x}])
    assert len(samples_of(mod, info, given, 0).samples) == 2
    assert digest(given_arrays(info, {"x0": x})) != digest(given)
    for wrong, message in (
        ({}, "'x0' is missing"),
        ({"x0": x, "y": x}, "no input 'y'"),
        ({"x0": x.astype(np.float64)}, r"must be float32\[2, 3\], not float64"),
        ({"x0": x.T}, r"not float32\[3, 2\]"),
        ([], "not a single sample"),
        ([x], "a sample is a mapping of arrays by input name.*not ndarray"),
        ([{"x0": x}, [x]], "not list"),
        (x, "not ndarray"),
        ("x0", "not str"),
        ({"x0": [[1.0], [1.0, 2.0]]}, "'x0' is no array"),
    ):
        with pytest.raises(InputError, match=message):
            given_arrays(info, wrong)  # type: ignore[arg-type]
    np.savez(tmp_path / "a.npz", x0=x)
    assert np.array_equal(read_sample(tmp_path / "a.npz")["x0"], x)
    np.save(tmp_path / "b.npy", x)
    for name in ("b.npy", "none.npz"):
        with pytest.raises(InputError, match="cannot read input"):
            read_sample(tmp_path / name)


def test_what_is_given_is_run_on_and_belongs_to_the_log(tmp_path: Path) -> None:
    """The same log answers for the same inputs only."""
    mod = graph([(4, 64)], lambda emit, x: op.nn.relu(emit(op.exp(x))))
    log = tmp_path / "log.jsonl"
    given = [{"x0": RNG.random((4, 64)).astype(np.float32)} for _ in range(2)]
    result = collage.optimize(mod, ["llvm"], log=log, inputs=given, num_threads=1)
    assert result.report.outputs_rounding_rel_diff is not None and result.report.remarks == []
    again = collage.optimize(mod, ["llvm"], log=log, inputs=given, replay=True, num_threads=1)
    assert again.module.script() == result.module.script()
    with pytest.raises(ReplayMissError, match="search"):
        collage.optimize(mod, ["llvm"], log=log, inputs=given[:1], replay=True, num_threads=1)


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 0.2), (120.0, 60.0), (0.45, 0.25), (0, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_batch_norms_tell_what_inputs_are_like(mean: float, deviation: float, dtype: str) -> None:
    """Statistics of a first layer on data of some range give that range back."""
    rng = np.random.default_rng(2)
    filters = (rng.standard_normal((24, 3, 3, 3)) * 0.2).astype(dtype)
    data = mean + deviation * rng.standard_normal((4, 3, 24, 24))
    layer = graph([(4, 3, 24, 24)], lambda _, x: op.nn.conv2d(x, relax.const(filters)), dtype=dtype)
    (seen,) = evaluate(layer, [data.astype(dtype)])
    seen = seen.astype(np.float64)
    statistics = [seen.mean((0, 2, 3)), seen.var((0, 2, 3))]

    def network(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.conv2d(x, relax.const(filters)))
        scale, shift, *moments = (
            relax.const(np.asarray(v).astype("float32" if dtype == "float32" else dtype))
            for v in (np.ones(24), np.zeros(24), *statistics)
        )
        y = emit(op.nn.batch_norm(y, scale, shift, *moments, axis=1, training=False))
        return op.nn.relu(emit(relax.TupleGetItem(y, 0)))

    imported = import_model(graph([(4, 3, 24, 24)], network, dtype=dtype), CPU)
    (found,) = imported.ranges
    assert abs(found.deviation - deviation) < 0.1 * deviation
    assert abs(found.mean - mean) < 0.1 * max(deviation, abs(mean))
    (x,) = imported.random_inputs(0)
    assert abs(float(x.astype(np.float64).mean()) - found.mean) < 0.1 * deviation


def selecting(high: float, low: float = 0.0) -> Callable[[Emit, relax.Expr], relax.Expr]:
    """What stands where a product says, with inputs between low and high in a table of four."""
    table = relax.const(np.arange(12, dtype=np.float32).reshape(4, 3))

    def build(emit: Emit, x: relax.Expr) -> relax.Expr:
        step = emit(op.subtract(x, relax.const(np.float32(low))))
        step = emit(op.multiply(step, relax.const(np.float32(4 / (high - low)))))
        return op.gather_elements(table, emit(op.astype(step, "int64")), axis=0)

    return build


def test_where_noise_selects_nothing_inputs_lie_between_0_and_1() -> None:
    mod = graph([(64, 3)], selecting(1.0))
    info = [TensorInfo((64, 3), "float32", "x0")]
    found = samples_of(mod, info, None, 0)
    (sample,), remarks = found.samples, found.remarks
    places = (sample.inputs[0] * 4).astype("int64")
    assert places.min() == 0 and places.max() == 3
    want = np.take_along_axis(np.arange(12, dtype=np.float32).reshape(4, 3), places, 0)
    assert np.array_equal(sample.expected[0], want)
    assert "evenly drawn from 0 to 1" in remarks[0] and "gather_elements" in remarks[0]


def test_where_no_draw_selects_anything_inputs_are_asked_for() -> None:
    mod = graph([(8, 3)], selecting(1010.0, low=1000.0))
    info = [TensorInfo((8, 3), "float32", "x0")]
    with pytest.raises(InputError, match=r"gather_elements .*out of bounds.* inputs="):
        samples_of(mod, info, None, 0)
    example = np.full((8, 3), 1003.0, np.float32)
    found = samples_of(mod, info, None, 0, ranges=[Range(example=example)])
    assert np.array_equal(found.samples[0].inputs[0], example)
    assert "traced with" in found.remarks[0]
    with pytest.raises(InputError, match=r"that are given .*gather_elements"):
        samples_of(mod, info, [[np.zeros((8, 3), np.float32)]], 0)


def test_with_little_time_the_first_draw_has_to_do() -> None:
    """Where rounding moves much, others were tried for 20 s, whatever the budget."""
    mod = graph([(1, 8, 12, 12)], vanishing, dtype="float16")
    info = [TensorInfo((1, 8, 12, 12), "float16", "x0")]
    found = samples_of(mod, info, None, 0, until=Deadline.after(0))
    assert np.array_equal(found.samples[0].inputs[0], draw_inputs(mod, info, 0)[0])
    assert np.array_equal(found.samples[0].expected[0], evaluate(mod, draw_inputs(mod, info, 0))[0])
