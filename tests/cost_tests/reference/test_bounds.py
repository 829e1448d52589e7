"""How far off a result may be: what rounding does on the very inputs, and not much more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from collage.backends.contract.errors import MeasurementError
from collage.cost.reference import Arithmetic, Distance, Sample, distance, sample_of
from collage.cost.reference.compare import RMS_LIMIT
from collage.cost.reference.evaluator import evaluate
from collage.cost.reference.rounding import EPSILON, rounded
from collage.testing import graph

Emit = Callable[[relax.Expr], relax.Var]
RNG = np.random.default_rng(5)


def weight(*shape: int, dtype: str = "float16") -> relax.Expr:
    fan_in = int(np.prod(shape[1:]))
    values = RNG.standard_normal(shape) * (2.0 / fan_in) ** 0.5
    return relax.const(values.astype(dtype))


def generator(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Three transposed convolutions, as in DCGAN's generator."""
    for before, after in ((32, 24), (24, 16), (16, 3)):
        x = emit(op.nn.conv2d_transpose(x, weight(before, after, 4, 4), strides=2, padding=1))
        x = emit(op.nn.relu(x)) if after > 3 else x
    return op.tanh(x)


def fits(sample: Sample, outputs: list[np.ndarray]) -> bool:
    triples = zip(outputs, sample.expected, sample.noise, strict=True)
    return all(distance(got, wanted).fits(noise.bound()) for got, wanted, noise in triples)


@pytest.fixture(scope="module")
def dcgan() -> tuple[tvm.IRModule, Sample]:
    mod = graph([(1, 32, 6, 6)], generator, dtype="float16")
    return mod, sample_of(mod, [RNG.standard_normal((1, 32, 6, 6)).astype(np.float16)])


def test_a_network_that_is_a_little_wrong_is_refused(dcgan: tuple[tvm.IRModule, Sample]) -> None:
    """What a transposed convolution with sums in float16 came to: 3.2 % of the largest value where
    rounding explains 0.3 %; the layer itself 1.4 %."""
    mod, sample = dcgan
    (expected,), (noise,) = sample.expected, sample.noise
    assert noise.form == "float16" and 1e-4 < noise.rms < 5e-3 and not noise.is_chaotic
    assert fits(sample, evaluate(mod, sample.inputs, Arithmetic(stores=True, dither=9)))
    wide = expected.astype(np.float32)
    for share in (0.032, 0.014):
        error = RNG.standard_normal(wide.shape) * np.abs(wide).max() * share / 4
        assert not fits(sample, [(wide + error).astype(np.float16)])
    one = wide.copy()
    one.flat[7] += 0.02 * np.abs(wide).max()
    assert not fits(sample, [one.astype(np.float16)]), "a single wrong element"
    assert not fits(sample, [(wide * 1.01).astype(np.float16)]), "a little everywhere"


def test_sums_in_half_precision_are_refused() -> None:
    """A product over 4096 elements whose partial sums are rounded to float16."""
    a, b = (RNG.random((64, 4096)).astype(np.float16) for _ in range(2))
    mod = graph([(64, 4096)], lambda _, x: op.matmul(x, relax.const(b.T.copy())), dtype="float16")
    sample = sample_of(mod, [a])
    total = np.zeros((64, 64), np.float16)
    for k in range(4096):
        total += np.outer(a[:, k], b[:, k])
    assert not fits(sample, [total])
    assert fits(sample, [(a.astype(np.float32) @ b.T.astype(np.float32)).astype(np.float16)])


def chaotic(emit: Emit, x: relax.Expr) -> relax.Expr:
    """A map whose errors double at every step, on [-1, 1]."""
    for _ in range(12):
        x = emit(op.multiply(x, x))
        x = emit(op.subtract(emit(op.multiply(x, relax.const(2.0, "float16"))), one()))
    return x


def one() -> relax.Expr:
    return relax.const(1.0, "float16")


def test_where_rounding_alone_changes_everything_much_is_right_but_not_anything() -> None:
    mod = graph([(4000,)], chaotic, dtype="float16")
    x = np.linspace(-0.99, 0.99, 4000).astype(np.float16)
    sample = sample_of(mod, [x])
    (noise,), (expected,) = sample.noise, sample.expected
    assert noise.is_chaotic and noise.bound().rms == RMS_LIMIT
    for wrong in (np.zeros_like(expected), RNG.permutation(expected), -expected):
        assert not fits(sample, [wrong])
    off = expected + RNG.standard_normal(4000) * 0.1
    assert fits(sample, [off.astype(np.float16)])


def test_float32_is_bounded_by_its_own_rounding_where_that_matters() -> None:
    """Quotients by small differences: twice the digits tell what float32 does to them."""
    mod = graph([(50_000,), (50_000,)], lambda emit, x, y: op.divide(x, emit(op.subtract(x, y))))
    x = (1.0 + RNG.random(50_000) * 1e-3).astype(np.float32)
    y = (1.0 + RNG.random(50_000) * 1e-3).astype(np.float32)
    harmless = graph([(50_000,)], lambda _, x: op.exp(x))
    assert sample_of(harmless, [x]).noise[0].bound().largest < 1.1e-3
    sums = graph(
        [(50_000,), (50_000,)],
        lambda emit, x, y: op.subtract(emit(op.multiply(x, y)), emit(op.multiply(y, y))),
    )
    assert 1e-6 < sample_of(sums, [x, y]).noise[0].rms < 1e-2
    assert sample_of(mod, [x, y]).noise[0].form == "float32"


def test_a_target_that_may_round_float32_says_how_much_is_allowed() -> None:
    mod = graph([(8, 256)], lambda emit, x: op.matmul(x, weight(256, 300, dtype="float32")))
    x = [RNG.standard_normal((8, 256)).astype(np.float32)]
    noise = {form: sample_of(mod, x, form).noise[0] for form in ("float32", "tf32", "bfloat16")}
    assert noise["float32"].rms < 1e-6 < 1e-4 < noise["tf32"].rms < noise["bfloat16"].rms
    assert [n.form for n in noise.values()] == ["float32", "tf32", "bfloat16"]


def test_integers_are_exact_unless_rounding_decides_them() -> None:
    exact = graph([(9,)], lambda _, x: op.astype(x, "int32"))
    sample = sample_of(exact, [np.arange(9, dtype=np.float32)])
    assert sample.noise[0].bound() == Distance(0.0, 0.0)
    assert not fits(sample, [np.arange(1, 10, dtype=np.int32)])
    decided = graph(
        [(100, 64)],
        lambda emit, x: op.argmax(emit(op.matmul(x, weight(64, 50))), axis=1),
        dtype="float16",
    )
    wanted = sample_of(decided, [RNG.standard_normal((100, 64)).astype(np.float16)])
    (noise,) = wanted.noise
    assert noise.bound().rms <= 3 * noise.rms + 0.01
    other = np.array(wanted.expected[0]) + 1
    assert not fits(wanted, [other])


def test_outputs_of_few_elements_are_rounded_several_times() -> None:
    """One number may be right to its last digit by chance."""
    mean = graph([(1, 3000)], lambda emit, x: op.mean(emit(op.exp(x)), axis=1), dtype="float16")
    sample = sample_of(mean, [RNG.standard_normal((1, 3000)).astype(np.float16)])
    assert sample.noise[0].size == 1 and sample.noise[0].rms > 0.0


@pytest.mark.parametrize("seed", range(12))
def test_a_network_that_amplifies_rounding_may_be_summed_in_any_order(seed: int) -> None:
    """All outputs hang on one number whose last digits grow: how far they are off is chance."""
    size, steps = 3000, 16

    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        value: relax.Expr = emit(op.mean(x, axis=1, keepdims=True))
        for _ in range(steps):
            rest = emit(op.subtract(relax.const(1.0, "float32"), value))
            value = emit(op.multiply(emit(op.multiply(relax.const(3.9, "float32"), value)), rest))
        return op.multiply(x, value)

    x = np.random.default_rng(seed).random((1, size), np.float32)
    sample = sample_of(graph([(1, size)], body), [x])
    for order in range(6):
        shuffled = np.random.default_rng(order).permutation(x[0])
        value = np.float32(shuffled.sum() / np.float32(size))
        for _ in range(steps):
            value = np.float32(3.9) * (value * (np.float32(1.0) - value))
        assert distance(x * value, sample.expected[0]).fits(sample.noise[0].bound())


def test_what_overflows_in_between_is_told() -> None:
    mod = graph([(100,)], lambda emit, x: op.sqrt(emit(op.multiply(x, x))), dtype="float16")
    x = np.linspace(0, 512, 100).astype(np.float16)
    (noise,) = sample_of(mod, [x]).noise
    assert 0.4 < noise.overflow < 0.6 and noise.rms < 1e-3


def test_samples_keep_their_noise_in_a_folder(tmp_path: Path) -> None:
    mod = graph([(6,)], lambda _, x: op.exp(x), dtype="bfloat16")
    sample = sample_of(mod, [np.ones(6, "bfloat16")])
    sample.save(tmp_path)
    again = Sample.load(tmp_path)
    assert again.noise == sample.noise and again.noise[0].form == "bfloat16"
    assert np.array_equal(again.expected[0], sample.expected[0])
    assert np.array_equal(again.inputs[0], sample.inputs[0])


def test_a_sample_whose_folder_is_gone_is_an_error(tmp_path: Path) -> None:
    """Not one without inputs, of which a model would be called with none, and blamed."""
    with pytest.raises(MeasurementError, match="there is no sample in"):
        Sample.load(tmp_path / "gone")


@settings(max_examples=60, deadline=None)
@given(st.floats(width=32, allow_nan=False), st.sampled_from(["float16", "bfloat16", "tf32"]))
def test_rounding_is_to_the_nearest(value: float, form: str) -> None:
    x = np.array([value], np.float32)
    near = rounded(x, form)
    assert np.array_equal(rounded(near, form), near)
    if form != "float16":
        tiny = np.abs(x) < np.finfo(np.float32).smallest_normal
        assert tiny or np.isinf(near) or np.abs(near - x) <= EPSILON[form] / 2 * np.abs(x)
    else:
        with np.errstate(over="ignore"):
            assert np.array_equal(near, x.astype(np.float16).astype(np.float32))


FACTORS = np.round(np.random.default_rng(6).standard_normal((48, 48)) * 4) / 16
"""The same numbers in every type."""

CHAIN = {
    "exp": lambda emit, x: op.tanh(emit(op.exp(emit(op.multiply(x, half(x)))))),
    "norm": lambda emit, x: op.nn.softmax(x, axis=-1),
    "product": lambda emit, x: op.matmul(x, relax.const(FACTORS.astype(str(x.ty.dtype)))),
    "residual": lambda emit, x: op.add(x, emit(op.nn.silu(x))),
    "mean": lambda emit, x: op.subtract(x, emit(op.mean(x, axis=-1, keepdims=True))),
}


def half(x: relax.Expr) -> relax.Expr:
    return relax.const(np.asarray(0.5).astype(str(x.ty.dtype)))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(CHAIN)), st.booleans()), min_size=1, max_size=6),
    st.sampled_from(["float16", "bfloat16"]),
    st.integers(1, 1000),
)
@example([("exp", True)] * 3 + [("mean", True)], "float16", 1)
@example([("exp", False), ("exp", True), ("exp", True), ("mean", False)], "float16", 1)
def test_honest_programs_fit_and_wrong_ones_do_not(
    steps: list[tuple[str, bool]], dtype: str, seed: int
) -> None:
    """Whoever rounds elsewhere is right; whoever is off by a tenth is not."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        for step, _ in steps:
            x = emit(CHAIN[step](emit, x))
        return x

    def fused(emit: Emit, x: relax.Expr) -> relax.Expr:
        """The same by kernels that compute in float32, and store after some steps only."""
        for number, (step, stores) in enumerate(steps, 1):
            wide = x if str(x.ty.dtype) == "float32" else emit(op.astype(x, "float32"))
            x = emit(CHAIN[step](emit, wide))
            if stores or number == len(steps):
                x = emit(op.astype(x, dtype))
        return x

    mod = graph([(64, 48)], body, dtype=dtype)
    x = np.random.default_rng(seed).standard_normal((64, 48)).astype(dtype)
    sample = sample_of(mod, [x])
    (noise,), (wanted,) = sample.noise, sample.expected
    assert fits(sample, evaluate(mod, [x]))
    kernels = graph([(64, 48)], fused, dtype=dtype)
    if not noise.is_chaotic:
        assert fits(sample, evaluate(kernels, [x], Arithmetic(stores=True)))
    if noise.rms <= 4 * EPSILON[dtype]:
        # Up or down at random is off by up to a whole unit, to nearest by half a one: where that
        # is amplified, twice as much is no bound for it.
        assert fits(sample, evaluate(mod, [x], Arithmetic(stores=True, dither=seed)))
    if not noise.is_chaotic:
        wide = wanted.astype(np.float32)
        assert not fits(sample, [(wide * (1.1 + 3 * noise.rms)).astype(dtype)])
