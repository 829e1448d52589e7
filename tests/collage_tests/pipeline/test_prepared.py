"""Passes that backends bring: which run, in which order, and which are left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.contract import (
    Availability,
    BackendTarget,
    ExternalBackend,
    PatternTriple,
    PreparesModules,
    TargetSet,
    registry,
)
from collage.backends.devices import CPU
from collage.cost.reference import evaluate
from collage.pipeline import import_model, prepare_module
from collage.testing import graph

LLVM = tvm.target.Target("llvm")


def rewriting(name: str, found: str, make) -> tvm.transform.Pass:  # type: ignore[no-untyped-def]
    """A pass that puts something else in place of each call of an operator of one argument."""

    @relax.expr_functor.mutator
    class Rewriter(relax.PyExprMutator):
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            call = self.visit_expr_post_order(call)
            if isinstance(call.op, tvm.ir.Op) and call.op.name == found:
                return self.builder_.normalize(make(self.builder_, call.args[0]))
            return call

    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        ORDER.append((name, BackendTarget.current()))
        rewriter = Rewriter(mod)
        rewriter.builder_.update_func(mod.get_global_var("main"), rewriter.visit_expr(mod["main"]))
        return rewriter.builder_.get()

    return tvm.transform.module_pass(run, opt_level=0, name=name)


def failing(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    raise ValueError("no such luck")


def doubled(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    wide = graph([(4, 8), (4, 8)], lambda emit, x, y: op.exp(x))
    return tvm.IRModule({"main": wide["main"]})


ORDER: list[tuple[str, BackendTarget | None]] = []


class Preparing(ExternalBackend, PreparesModules):
    """Brings the passes that a test gives it."""

    name = "preparing"

    def __init__(self, name: str, passes: Sequence[tvm.transform.Pass]) -> None:
        self.name = name  # type: ignore[misc]
        self.passes = passes

    def probe(self) -> Availability:
        return Availability(True)

    def patterns(self, target: BackendTarget) -> list[PatternTriple]:
        return []

    def codegen(self, functions, target, context):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    def module_passes(self, target: BackendTarget) -> Sequence[tvm.transform.Pass]:
        return self.passes


@pytest.fixture
def with_passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Makes targets of backends with given passes, registered in the order of their names."""
    registry.backend_names()
    ORDER.clear()

    def make(**passes: Sequence[tvm.transform.Pass]) -> TargetSet:
        own = {name: Preparing(name, given) for name, given in passes.items()}
        monkeypatch.setattr(registry, "_backends", {**registry._backends, **own})
        targets = [BackendTarget.of(name, LLVM) for name in passes]
        # The order in which a user names them is another one.
        return TargetSet(BackendTarget("tvm", LLVM), tuple(reversed(targets)))

    yield make


def network() -> tvm.IRModule:
    return graph([(4, 8)], lambda emit, x: op.tanh(emit(op.exp(emit(op.negative(x))))))


def names_of(imported) -> list[str]:  # type: ignore[no-untyped-def]
    return [imported.graph.op_name(index) for index in range(len(imported.graph))]


def test_passes_run_in_the_order_of_registration_with_their_target_current(with_passes) -> None:  # type: ignore[no-untyped-def]
    def sine(builder, x):  # type: ignore[no-untyped-def]
        y = builder.emit(op.exp(op.multiply(x, relax.const(2.0, "float32"))))
        one = relax.const(1.0, "float32")
        return op.divide(builder.emit(op.subtract(y, one)), builder.emit(op.add(y, one)))

    first = rewriting("first", "relax.negative", lambda _, x: op.multiply(x, relax.const(-1.0)))
    second = rewriting("second", "relax.tanh", sine)
    targets = with_passes(early=[first], late=[second])
    imported = import_model(network(), CPU)
    progress: list[str] = []
    made = prepare_module(imported, targets, progress=lambda event: progress.append(event.message))
    assert [("first", targets.named("early")), ("second", targets.named("late"))] == ORDER
    assert names_of(imported) == ["negative", "exp", "tanh"]
    assert "tanh" not in names_of(made) and "negative" not in names_of(made)
    assert made.remarks == () and not progress
    x = np.random.default_rng().uniform(-1, 1, (4, 8)).astype(np.float32)
    np.testing.assert_allclose(evaluate(made.mod, [x])[0], np.tanh(np.exp(-x)), rtol=1e-4)


def test_a_pass_that_computes_something_else_fails_or_changes_main_is_left_out(with_passes) -> None:  # type: ignore[no-untyped-def]
    wrong = rewriting("wrong", "relax.exp", lambda _, x: op.cos(x))
    right = rewriting("right", "relax.negative", lambda _, x: op.multiply(x, relax.const(-1.0)))
    fails = tvm.transform.module_pass(failing, opt_level=0, name="fails")
    wider = tvm.transform.module_pass(doubled, opt_level=0, name="wider")
    targets = with_passes(careless=[wrong, fails, wider, right])
    told: list[str] = []
    made = prepare_module(
        import_model(network(), CPU), targets, progress=lambda event: told.append(event.message)
    )
    assert names_of(made) == ["multiply", "exp", "tanh"]
    assert list(made.remarks) == told
    reasons = ["results are off by", "it fails: ", "it changes the parameters or results of main"]
    for remark, name, reason in zip(
        made.remarks, ["wrong", "fails", "wider"], reasons, strict=True
    ):
        assert remark.startswith(f"the pass {name} of careless was left out: {reason}")
    assert "no such luck" in made.remarks[1]


def test_nothing_is_evaluated_without_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the module was run")

    monkeypatch.setattr("collage.pipeline.prepared.sample_of", never)
    imported = import_model(network(), CPU)
    assert prepare_module(imported, TargetSet(BackendTarget("tvm", LLVM))) is imported
