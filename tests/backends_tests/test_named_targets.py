"""Several targets of one backend in one module: each function is compiled by its own."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.compile import codegen_names, compile_module, used_targets
from collage.backends.contract import (
    TARGET_ATTR,
    BackendTarget,
    BuildContext,
    TargetSet,
)
from collage.backends.contract.errors import TargetError
from collage.backends.contract.registry import get_backend
from collage.backends.link import stage_libraries
from collage.cost.reference import DEFAULT_RTOL, evaluate, largest_error
from collage.passes import lower
from collage.search import make_partitioning
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.search.rules.default import MatchRule
from collage.targets import resolve_targets
from collage.testing import constant, graph


def chain() -> tvm.IRModule:
    """Matrix products, whose partitions may alternate between targets."""

    def body(emit, x: relax.Expr) -> relax.Expr:
        for _ in range(3):
            x = emit(op.matmul(x, constant(16, 16, scale=0.25)))
        return op.matmul(x, constant(16, 16, scale=0.25))

    return graph([(8, 16)], body)


def partitioned(mod: tvm.IRModule, targets: TargetSet) -> tvm.IRModule:
    """Every product of the chain to the next of the external targets, in turn."""
    dataflow = DataflowGraph.from_function(mod["main"])
    chosen: list[Candidate] = []
    for index in range(len(dataflow)):
        target = targets.external[index % len(targets.external)]
        found = MatchRule(target).find(dataflow).candidates
        chosen.append(next(c for c in found if c.nodes == 1 << index))
    return lower(mod, dataflow, make_partitioning(dataflow, chosen))


SECOND = {
    "onednn": {"layout": "nhwc"},
    "openblas": {"epilogues": False},
    "openvino": {"precision": "bfloat16"},
    "onnxruntime": {"blocked": False},
}


@pytest.mark.parametrize("backend", sorted(SECOND))
def test_two_targets_of_a_backend_share_a_library(
    backend: str, context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not get_backend(backend).probe().usable:
        pytest.skip(f"{backend} is not installed")
    options = SECOND[backend] if backend != "openvino" else {}
    targets = resolve_targets([backend, {"kind": backend, "name": "second", **options}])
    mod = chain()
    lowered = partitioned(mod, targets)
    names = sorted(var.name_hint for var in lowered.get_global_vars())
    assert names == sorted(["main", *(f"{n}_{i}" for n in (backend, "second") for i in (0, 1))])
    assert codegen_names(lowered) == {backend}
    assert used_targets(lowered, targets) == list(targets.external)
    seen: dict[str, list[str]] = {}
    original = type(targets[1].implementation).codegen

    def codegen(functions, target, *rest):  # type: ignore[no-untyped-def]
        assert BackendTarget.current() == target
        seen[target.name] = [str(f.attrs["global_symbol"]) for f in functions]
        return original(target.implementation, functions, target, *rest)

    monkeypatch.setattr(targets[1].implementation, "codegen", codegen)
    library = compile_module(lowered, targets, context.work_dir / "two" / "model.so", context)
    assert {n: sorted(s) for n, s in seen.items()} == {
        name: [f"{name}_0", f"{name}_1"] for name in (backend, "second")
    }
    stage_libraries(library, copy=False)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library.path)), tvm.cpu())
    x = np.random.default_rng().standard_normal((8, 16), np.float32)
    (expected,) = evaluate(mod, [x])
    assert largest_error(machine["main"](tvm.runtime.tensor(x)).numpy(), expected) < DEFAULT_RTOL


def test_a_function_for_an_unknown_target_is_an_error(context: BuildContext) -> None:
    targets = resolve_targets(["openblas", {"kind": "openblas", "name": "second"}])
    lowered = partitioned(chain(), targets)
    with pytest.raises(TargetError, match="target 'second', which is none of these: tvm, openblas"):
        compile_module(lowered, targets[:2], context.work_dir / "one.so", context)
    # Whoever partitions by hand names a backend, and is understood where that is one target.
    bare = {var: f.without_attr(TARGET_ATTR) for var, f in lowered.functions.items() if f.attrs}
    by_hand = tvm.IRModule({**lowered.functions, **bare})
    assert used_targets(by_hand, [targets[0], targets[2]]) == [targets[2]]
