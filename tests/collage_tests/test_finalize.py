"""Modules partitioned by hand or by Collage, built by TVM's own passes and linked by finalize."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix
from tvm.relax.dpl import is_op, wildcard

import collage
from collage.backends.contract import Availability, BackendTarget, PatternTriple, TensorBackend
from collage.backends.contract.registry import backend_names, register_backend
from collage.backends.contract.relax_codegen import named_targets
from collage.cost.models.roofline import DeviceSpec, RooflineCostModel
from collage.cost.reference import DEFAULT_RTOL, evaluate, largest_error
from collage.testing import constant, graph


class Plain(TensorBackend):
    """Matrix products by TVM's own loops, under a name of its own."""

    name = "plain_products"

    def probe(self) -> Availability:
        return Availability(True, {"plain_products": "1.0"})

    def patterns(self, target: BackendTarget) -> list[PatternTriple]:
        product = is_op("relax.matmul")(wildcard(), wildcard())
        return [
            PatternTriple("plain_products.matmul", product),
            PatternTriple("plain_products.matmul_tanh", is_op("relax.tanh")(product)),
        ]


@pytest.fixture(autouse=True, scope="module")
def registered() -> None:
    if Plain.name not in backend_names():
        register_backend(Plain())


def network() -> tvm.IRModule:
    """Products with constants, one of them shared, and operators that no library takes."""
    shared = constant(32, 32, scale=0.2)

    def body(emit, x: relax.Expr) -> relax.Expr:
        first = emit(op.matmul(x, constant(24, 32, scale=0.2)))
        second = emit(op.tanh(emit(op.matmul(first, shared))))
        return op.erf(emit(op.matmul(second, shared)))

    return graph([(8, 24)], body)


def agrees(module: tvm.runtime.Module, mod: tvm.IRModule) -> None:
    machine = relax.VirtualMachine(module, tvm.cpu())
    for _ in range(3):
        x = np.random.default_rng().standard_normal((8, 24), np.float32)
        actual = machine["main"](tvm.runtime.tensor(x)).numpy()
        assert largest_error(actual, evaluate(mod, [x])[0]) < DEFAULT_RTOL


@pytest.mark.parametrize(
    ("backend", "merged"),
    # OpenBLAS takes operators, not regions: MergeCompositeFunctions is for those that take these.
    [
        ("openblas", False),
        ("onednn", False),
        ("onednn", True),
        (Plain.name, False),
        (Plain.name, True),
    ],
)
def test_partitioned_by_hand(backend: str, merged: bool, tmp_path: Path) -> None:
    mod = network()
    patterns = get_patterns_with_prefix(f"{backend}.")
    fuse = relax.transform.FuseOpsByPattern(patterns, annotate_codegen=not merged)
    passes = [fuse, *([relax.transform.MergeCompositeFunctions()] if merged else [])]
    partitioned = tvm.transform.Sequential(passes)(mod)
    built = relax.transform.RunCodegen()(partitioned)
    assert "const_name_to_constant" in built.attrs
    executable = tvm.compile(built, "llvm")
    assert [target.name for target in named_targets(executable.mod)] == [backend]
    module = collage.finalize(executable, tmp_path / "model.so")
    agrees(module, mod)
    agrees(tvm.runtime.load_module(str(tmp_path / "model.so")), mod)


def test_partitioned_by_collage_with_its_targets(tmp_path: Path) -> None:
    mod = network()
    targets = ["llvm", "openblas", {"kind": "openblas", "name": "second", "epilogues": False}]
    spec = DeviceSpec("some device", 1e12, 1e12, 1e12, bytes_per_sec=1e11)
    for name in ("openblas", "second"):
        result = collage.optimize(
            mod, targets, strategy=f"single:{name}", cost_model=RooflineCostModel(spec)
        )
        options = result.targets.codegen_options()
        executable = tvm.compile(relax.transform.RunCodegen(options)(result.module), "llvm")
        assert named_targets(executable.mod) == [result.targets.named(name)]
        agrees(collage.finalize(executable), mod)


def test_attributes_are_given_as_relax_takes_them() -> None:
    mod = network()
    patterns = get_patterns_with_prefix("onednn.")
    partitioned = relax.transform.FuseOpsByPattern(patterns, annotate_codegen=True)(mod)
    built = relax.transform.RunCodegen({"onednn": {"layout": "nhwc"}})(partitioned)
    executable = tvm.compile(built, "llvm")
    (target,) = named_targets(executable.mod)
    assert target.option_dict()["layout"] == "nhwc"


def test_what_needs_no_backend_is_linked_too() -> None:
    mod = network()
    agrees(collage.finalize(tvm.compile(mod, "llvm")), mod)
