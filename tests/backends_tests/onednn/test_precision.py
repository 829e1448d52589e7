"""Products of operands rounded to bfloat16: right to its digits, and really computed so."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.contract import Precision
from collage.backends.contract.errors import TargetError
from collage.backends.devices.cpu_flags import cpu_flags_here
from collage.backends.onednn.options import BFLOAT16_FLAGS
from collage.cost.reference import evaluate, largest_error
from collage.cost.reference.arithmetic import MEANT
from collage.cost.reference.evaluator import Evaluator
from collage.cost.reference.sensitivity import in_form
from collage.cost.reference.values import Value
from collage.targets import resolve_targets
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.onednn.region_graphs import GRAPHS
from tests.backends_tests.onednn.regions import Regions, random_inputs, run_elsewhere

Body = Callable[[Emit, relax.Expr], relax.Expr]

_HALF_A_DIGIT = 2.0**-8
"""What rounding to bfloat16 changes of a number at most."""


def _matmul(emit: Emit, x: relax.Expr) -> relax.Expr:
    return op.nn.gelu(emit(op.matmul(x, constant(256, 512, scale=1 / 16))))


def _conv(emit: Emit, x: relax.Expr) -> relax.Expr:
    y = op.nn.conv2d(x, constant(64, 32, 3, 3, scale=1 / 17), padding=1)
    return op.nn.relu(op.add(emit(y), constant(1, 64, 1, 1)))


@pytest.mark.parametrize("shape, body", [((64, 256), _matmul), ((1, 32, 28, 28), _conv)])
def test_operands_are_rounded_and_nothing_else(
    shape: tuple[int, ...], body: Body, tmp_path: Path
) -> None:
    mod = graph([shape], body)
    x = np.random.default_rng().standard_normal(shape).astype(np.float32)
    (expected,) = evaluate(mod, [x])
    regions = Regions({"main": mod}, tmp_path / "regions", {"precision": "bfloat16"})
    (got,) = regions.run("main", [x])
    off = largest_error(got, expected)
    # Each product is off by less than two roundings; sums of hundreds, by far less.
    assert off < 4 * _HALF_A_DIGIT
    if BFLOAT16_FLAGS & cpu_flags_here():
        assert off > 2e-5, "it was computed in float32"


def _chain(emit: Emit, x: relax.Expr) -> relax.Expr:
    """The first result is read by a product alone, the second by the sum of another one too."""
    y = emit(op.nn.conv2d(x, constant(48, 32, 3, 3, scale=1 / 17), padding=1))
    y = emit(op.nn.relu(emit(op.add(y, constant(1, 48, 1, 1)))))
    z = emit(op.nn.relu(emit(op.nn.conv2d(y, constant(32, 48, 1, 1, scale=1 / 7)))))
    depthwise = emit(op.nn.conv2d(z, constant(32, 1, 3, 3, scale=1 / 3), padding=1, groups=32))
    w = emit(op.nn.conv2d(depthwise, constant(32, 32, 1, 1, scale=1 / 6)))
    return emit(op.nn.relu(emit(op.add(w, z))))


def _heads(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Queries, keys and values are slices of one product's result, with gaps between."""
    joined = emit(op.matmul(x, constant(96, 288, scale=1 / 10)))
    heads = []
    for part in range(3):
        piece = emit(op.strided_slice(joined, axes=[2], begin=[96 * part], end=[96 * part + 96]))
        heads.append(emit(op.permute_dims(emit(op.reshape(piece, (2, 40, 3, 32))), [0, 2, 1, 3])))
    queries, keys, values = heads
    scores = emit(op.matmul(queries, emit(op.permute_dims(keys, [0, 1, 3, 2]))))
    shares = emit(op.nn.softmax(emit(op.multiply(scores, relax.const(0.17, "float32")))))
    mixed = emit(op.permute_dims(emit(op.matmul(shares, values)), [0, 2, 1, 3]))
    flat = emit(op.reshape(mixed, (2, 40, 96)))
    return emit(op.add(emit(op.matmul(flat, constant(96, 96, scale=1 / 10))), x))


def _mlp(emit: Emit, x: relax.Expr) -> relax.Expr:
    y = emit(op.nn.relu(emit(op.matmul(x, constant(96, 160, scale=1 / 10)))))
    return emit(op.matmul(y, constant(160, 96, scale=1 / 13)))


MORE = {
    "chain": graph([(2, 32, 20, 12)], _chain),
    "heads": graph([(2, 40, 96)], _heads),
    "mlp": graph([(2, 40, 96)], _mlp),
}


@pytest.fixture(scope="module", params=["auto", "blocked", "nhwc"])
def rounding(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Regions:
    folder = tmp_path_factory.mktemp("rounding")
    return Regions({**GRAPHS, **MORE}, folder, {"precision": "bfloat16", "layout": request.param})


@pytest.mark.parametrize("name", [*GRAPHS, *MORE])
def test_whole_regions_keep_to_the_digits_of_their_products(rounding: Regions, name: str) -> None:
    inputs = random_inputs(rounding.graphs[name], np.random.default_rng())
    for _ in range(2):  # the second call finds everything built
        found = rounding.run(name, inputs)
        for got, wanted in zip(found, evaluate(rounding.graphs[name], inputs), strict=True):
            assert largest_error(got, wanted) < 4 * _HALF_A_DIGIT


def _meant(mod: tvm.IRModule, x: np.ndarray) -> np.ndarray:
    """What comes out where operands of products are rounded, pictures for whoever reads them.

    The taps of depthwise convolutions are not: they are multiplied in float32.
    """
    evaluator = Evaluator(mod, MEANT)
    (parameter,) = mod["main"].params
    evaluator.env[parameter] = x
    rule = in_form("bfloat16")
    (block,) = mod["main"].body.blocks
    calls = {b: b.value for b in block.bindings if isinstance(b.value, relax.Call)}
    pictures = [call.args[0] for call in calls.values() if call.op.name == "relax.nn.conv2d"]
    fewer = next(operand for operand in map(rule, calls) if operand is not None)

    def picture(value: Value, expr: relax.Expr) -> Value:
        return fewer(value, expr) if any(expr.same_as(one) for one in pictures) else value

    for binding in block.bindings:
        operand, call = rule(binding), calls.get(binding)
        if call is not None and (
            getattr(call.attrs, "groups", 1) > 1 or call.op.name == "relax.add"
        ):
            operand = picture
        evaluator.env[binding.var] = (
            evaluator.expr(binding.value) if operand is None else evaluator.call(call, operand)
        )
    return np.asarray(evaluator.expr(mod["main"].body.body))


@pytest.mark.skipif(not BFLOAT16_FLAGS & cpu_flags_here(), reason="it computes in float32")
@pytest.mark.parametrize("name", MORE)
def test_only_what_products_read_is_rounded(rounding: Regions, name: str) -> None:
    (x,) = random_inputs(rounding.graphs[name], np.random.default_rng())
    (found,) = rounding.run(name, [x])
    wanted = _meant(rounding.graphs[name], x)
    off = np.abs(found - wanted) / np.abs(wanted).max()
    # Sums in another order round a few numbers between products the other way.
    assert np.quantile(off, 0.5) < 1e-4
    (exact,) = evaluate(rounding.graphs[name], [x])
    assert np.sqrt(np.mean((found - wanted) ** 2)) < 0.4 * np.sqrt(np.mean((found - exact) ** 2))


WINDOWS = (
    ((1, 80, 28, 28), (160, 80, 2, 2), (2, 2)),
    ((1, 48, 20, 20), (96, 48, 2, 4), (4, 2)),
    ((1, 144, 20, 20), (160, 144, 4, 2), (2, 4)),
    ((1, 16, 28, 20), (160, 16, 8, 4), (6, 4)),
    ((1, 48, 15), (160, 48, 2), (2,)),
    ((1, 112, 28, 7, 28), (160, 112, 1, 6, 1), (2, 4, 1)),
    ((1, 3, 28, 20, 20), (64, 3, 1, 2, 1), (4, 4, 1)),
    ((1, 3, 64, 64), (64, 3, 16, 16), (16, 16)),
    ((1, 96, 28, 28), (192, 96, 2, 2), (2, 2)),
)
"""Pictures, weights, steps: windows that touch, and that leave gaps. oneDNN's kernels for tiles of
bfloat16 give something else for several of them."""


def _strided(weights: tuple[int, ...], strides: tuple[int, ...]) -> Body:
    convolved = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}[len(strides)]
    scale = float(np.prod(weights[1:])) ** -0.5

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(convolved(x, constant(*weights, scale=scale), strides=list(strides)))
        last = constant(16, weights[0], *(1 for _ in strides), scale=weights[0] ** -0.5)
        return emit(convolved(emit(op.nn.relu(y)), last))

    return body


def test_windows_that_touch_or_leave_gaps(tmp_path: Path) -> None:
    graphs = {str(i): graph([x], _strided(w, s)) for i, (x, w, s) in enumerate(WINDOWS)}
    regions = Regions(graphs, tmp_path / "regions", {"precision": "bfloat16"})
    for name, mod in graphs.items():
        (x,) = random_inputs(mod, np.random.default_rng())
        (expected,), (got,) = evaluate(mod, [x]), regions.run(name, [x])
        assert largest_error(got, expected) < 4 * _HALF_A_DIGIT, WINDOWS[int(name)]


def test_a_precision_is_one_of_two() -> None:
    (_, target) = resolve_targets(["llvm", {"kind": "onednn", "precision": "bfloat16"}])
    assert target.implementation.precision(target.options) is Precision.BFLOAT16
    with pytest.raises(TargetError, match="float32, bfloat16"):
        resolve_targets(["llvm", {"kind": "onednn", "precision": "int4"}])


GROUPED = (
    ((1, 128, 14, 14), 32, 4, 1),
    ((2, 64, 15, 13), 8, 16, 2),
    ((1, 48, 9, 9), 6, 5, 1),
    ((1, 96, 20), 6, 16, 2),
    ((1, 64, 5, 6, 7), 16, 4, 1),
    ((1, 72, 12, 12), 9, 8, 1),
)
"""Pictures, groups, channels that each makes, steps."""


def _in_groups(x: tuple[int, ...], groups: int, made: int, stride: int) -> Body:
    axes = len(x) - 2
    convolved = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}[axes]
    inputs = x[1] // groups

    def body(emit: Emit, given: relax.Expr) -> relax.Expr:
        taps = (3,) * axes
        scale = (3**axes * inputs) ** -0.5
        weights = constant(groups * made, inputs, *taps, scale=scale)
        attrs = {"strides": [stride] * axes, "padding": [1] * axes, "groups": groups}
        y = emit(op.nn.relu(emit(convolved(given, weights, **attrs))))
        return emit(convolved(y, constant(16, groups * made, *(1,) * axes, scale=0.1)))

    return body


def test_groups_of_few_channels(tmp_path: Path) -> None:
    graphs = {str(i): graph([args[0]], _in_groups(*args)) for i, args in enumerate(GROUPED)}
    regions = Regions(graphs, tmp_path / "regions", {"precision": "bfloat16"})
    given = {n: random_inputs(mod, np.random.default_rng())[0] for n, mod in graphs.items()}
    found, told = run_elsewhere(regions.path, given, tmp_path, ONEDNN_VERBOSE="1")
    for name, mod in graphs.items():
        (expected,) = evaluate(mod, [given[name]])
        assert largest_error(found[name], expected) < 4 * _HALF_A_DIGIT, GROUPED[int(name)]
    run = re.findall(r",exec,cpu,convolution,([^,]*),.*,g\d+mb", told)
    if "amx_bf16" in cpu_flags_here():
        assert len(run) >= len(GROUPED) - 1  # nine groups of eight become three, and so on
        assert all("amx" in kernel for kernel in run), run
