"""A profile's kernels are those that run, each with its own time, bytes and backend."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

import collage
from collage.backends.contract import BackendTarget
from collage.backends.contract.errors import InputError
from collage.bundle import KernelTime, Profile
from collage.bundle.profile import profile_calls
from collage.cli import main
from collage.cost.base import Cost, CostModel
from collage.cost.workload import Workload
from collage.testing import graph
from collage.testing.graphs import Emit

SIDE = 192
MATRIX_BYTES = 4 * SIDE * SIDE


class PreferLibraries(CostModel):
    """Costs by which whatever a library takes is a library's."""

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        return [Cost.of_samples([1e-3 if t.backend == "tvm" else 1e-6]) for t in targets]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two products of a library with a sort between them, which is TVM's."""
    weights = np.random.default_rng().standard_normal((SIDE, SIDE)).astype("float32")

    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        product = emit(relax.op.matmul(x, relax.const(weights)))
        ordered = emit(relax.op.sort(product, axis=1))
        return relax.op.matmul(ordered, relax.const(weights))

    model = graph([(SIDE, SIDE)], body)
    result = collage.optimize(model, ["llvm", "openblas"], cost_model=PreferLibraries())
    return result.export(tmp_path_factory.mktemp("profile") / "bundle")


def _calling_another() -> tvm.runtime.Module:
    """``main`` computes a little, before and after it calls a function that computes much."""
    builder = relax.BlockBuilder()
    a, x = (relax.Var(name, relax.TensorType((SIDE, SIDE), "float32")) for name in "ax")
    with builder.function("inner", [a]):
        product = a
        for _ in range(4):
            product = builder.emit(relax.op.matmul(product, a))
        builder.emit_func_output(product)
    (inner,) = builder.get().get_global_vars()
    with builder.function("main", [x]):
        called = builder.emit(relax.Call(inner, [builder.emit(relax.op.negative(x))]))
        builder.emit_func_output(builder.emit(relax.op.abs(called)))
    return tvm.compile(builder.get(), "llvm").jit()


def test_a_function_that_calls_others_has_its_own_time_alone() -> None:
    data = tvm.runtime.tensor(np.zeros((SIDE, SIDE), "float32"))
    kernels = profile_calls(_calling_another(), tvm.cpu(), "main", [data], [], repeat=9, warmup=1)
    symbols = [k.symbol.removeprefix("tir_") for k in kernels]
    assert symbols == ["negative", "inner", *["matmul"] * 4, "abs"]
    times = {symbol: k.median_sec for symbol, k in zip(symbols, kernels, strict=True)}
    assert 0 <= times["inner"] < times["matmul"] and times["abs"] < times["matmul"]
    begins = [k.begin_sec for k in kernels]
    assert begins == sorted(begins)


def test_each_call_is_timed_where_it_runs(bundle: Path) -> None:
    profile = collage.load(bundle).profile(repeat=5, warmup=1)
    kernels = profile.kernels
    assert [(k.symbol, k.backend) for k in kernels if k.backend != "tvm"] == [
        ("openblas_0", "openblas"),
        ("openblas_1", "openblas"),
    ]
    symbols = [k.symbol for k in kernels]
    between = kernels[symbols.index("openblas_0") + 1 : symbols.index("openblas_1")]
    assert between and {k.backend for k in between} == {"tvm"}
    # The data, what comes out, and the weights where they are handed over.
    sizes = {k.bytes for k in kernels if k.backend == "openblas"}
    assert sizes <= {2 * MATRIX_BYTES, 3 * MATRIX_BYTES}
    begins = [k.begin_sec for k in kernels]
    assert begins == sorted(begins) and begins[0] > 0
    assert all(k.median_sec > 0 and k.spread_sec >= 0 for k in kernels)
    assert sum(map(profile.share, kernels)) == pytest.approx(1.0)
    assert sum(profile.by_backend().values()) == pytest.approx(profile.kernels_sec)
    assert profile.outside_sec <= profile.call_sec and profile.copy_bytes_per_sec > 1e8


def test_a_profile_does_not_stay_on_the_model(bundle: Path) -> None:
    loaded = collage.load(bundle)
    x = loaded.random_inputs(3)[0]
    before = loaded(x)
    loaded.profile(repeat=2, warmup=0)
    np.testing.assert_array_equal(loaded(x), before)


def test_the_terminal_shows_the_dearest_first_and_writes_a_trace(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.json"
    arguments = ["bench", str(bundle), "--repeat", "3", "--profile", "--trace", str(trace)]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "openblas_0  matmul" in shown and "GB/s" in shown and "outside kernels" in shown
    events = json.loads(trace.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert [e["name"] for e in spans if e["cat"] == "openblas"] == ["openblas_0", "openblas_1"]
    assert all(e["dur"] > 0 for e in spans)
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"openblas", "tvm"}


def test_programs_get_every_kernel(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(bundle), "--repeat", "3", "--profile", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    kernels = tuple(KernelTime(**kernel) for kernel in found["kernels"])
    profile = Profile(kernels, found["call_sec"], found["copy_bytes_per_sec"], found["repeat"])
    assert profile.repeat == 3 and len(profile.kernels) >= 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trace", "t.json"], "give --profile too"),
        (["--profile", "--trace", "/nowhere/t.json"], "cannot write '/nowhere/t.json'"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    bundle: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(bundle), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_profile_is_taken_on_the_inputs_that_are_given(bundle: Path) -> None:
    loaded = collage.load(bundle)
    given = np.random.default_rng().standard_normal((SIDE, SIDE)).astype("float32")
    assert loaded.profile(repeat=1, warmup=0, inputs=[given]).kernels
    with pytest.raises(InputError, match="must be float32"):
        loaded.profile(inputs=[given[1:]])


@pytest.mark.parametrize("repeat", [[np.ones(3)], 0, True, "3"])
def test_what_is_no_number_of_calls_is_refused(bundle: Path, repeat: object) -> None:
    loaded = collage.load(bundle)
    for timed in (loaded.profile, loaded.benchmark):
        with pytest.raises(InputError, match=r"repeat must be a number of calls.*inputs="):
            timed(repeat)  # type: ignore[operator]
