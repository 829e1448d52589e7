"""Greedy choices against the real passes: FuseOpsByPattern, MergeCompositeFunctions, FuseOps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import tvm
from tvm import relax
from tvm.relax.backend.utils import has_leaking_intermediate_variables

from collage.backends.contract import BackendTarget, Match
from collage.backends.contract.registry import get_backend
from collage.search.dataflow import DataflowGraph, bits
from collage.search.fusion import fuse_ops_groups
from collage.search.partitioning import validate
from collage.search.strategies.without_costs import greedy, single_backend
from tests.search_tests import networks
from tests.search_tests.toy_backends import (
    ALL_TARGETS,
    OPERATOR_TARGET,
    REGION_TARGET,
    TVM_TARGET,
)

Build = Callable[[], relax.Function]

BUILDS: dict[str, Build] = {
    "residual": networks.residual_block,
    "inception": networks.inception_block,
    "attention": networks.attention_block,
    "resnet": lambda: networks.resnet50((2, 2)),
    "densenet": lambda: networks.densenet(4),
    "wide": lambda: networks.wide(4),
    "inceptions": lambda: networks.function(
        (1, 8, 8, 8), lambda net, x: net.inception(net.inception(net.conv(x, 8, 7), 4), 4)
    ),
    "around": lambda: networks.function((1, 8, 8, 8), _around),
}


def _around(net: networks.Net, x: relax.Var) -> relax.Var:
    """A supported value that is used by an unsupported operator and joins its result again."""
    for _ in range(2):
        y = net.conv(x, 8, relu=True)
        side = net.emit(relax.op.nn.softmax(y))
        x = net.emit(relax.op.add(net.conv(y, 8), side))
    return x


Regions = Counter[tuple[str, tuple[str, ...]]]


def by_real_passes(func: relax.Function, target: BackendTarget) -> Regions:
    """Per call of a Codegen function its operators, after the passes themselves."""

    def pattern(triple: object) -> relax.transform.FusionPattern:
        def check(context: object) -> bool:
            match = Match(context.matched_expr, context.annotated_expr)  # type: ignore[attr-defined]
            leaks = has_leaking_intermediate_variables(context)
            return bool(triple.predicate(match)) and not leaks  # type: ignore[attr-defined]

        return relax.transform.FusionPattern(
            triple.name,
            triple.pattern,
            triple.annotations,
            check,  # type: ignore[attr-defined]
        )

    triples = reversed(get_backend(target.backend).patterns(target))
    mod = tvm.IRModule({"main": func})
    mod = relax.transform.FuseOpsByPattern([pattern(t) for t in triples], bind_constants=False)(mod)
    mod = relax.transform.MergeCompositeFunctions()(mod)
    found: Regions = Counter()
    for binding in mod["main"].body.blocks[0].bindings:
        callee = getattr(binding.value, "op", None)
        if isinstance(callee, tvm.ir.GlobalVar):
            codegen = str(mod[callee].attrs["Codegen"])
            found[codegen, tuple(sorted(_operators(mod[callee])))] += 1
    return found


def _operators(region: relax.Function) -> list[str]:
    """Operators of a region's composites, each as often as it is called."""
    composites: dict[relax.Var, list[str]] = {}
    called: list[str] = []
    for block in region.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Function):
                inner = [b.value for blk in value.body.blocks for b in blk.bindings]
                ops = [v.op.name.removeprefix("relax.") for v in inner if isinstance(v, relax.Call)]
                composites[binding.var] = ops
            elif isinstance(value, relax.Call):
                called += composites[value.op]
    return called


@pytest.mark.parametrize("name", BUILDS)
def test_regions_are_those_of_the_real_passes(name: str) -> None:
    func = BUILDS[name]()
    graph = DataflowGraph.from_function(func)
    found = single_backend(graph, REGION_TARGET, TVM_TARGET)
    validate(graph, found)
    ours: Regions = Counter(
        (c.backend, tuple(sorted(graph.op_name(i) for i in bits(c.nodes))))
        for c in found.candidates
        if c.composites
    )
    assert ours and ours == by_real_passes(func, REGION_TARGET)


LEGAL_NAMES = {"concat": "concatenate", "permute_dims": "transpose"}


@pytest.mark.parametrize("name", BUILDS)
def test_tvm_alone_fuses_as_fuse_ops_does_on_the_legalized_program(name: str) -> None:
    func = BUILDS[name]()
    graph = DataflowGraph.from_function(func)
    ours = Counter(
        tuple(sorted(_legal_name(graph.op_name(i)) for i in bits(group)))
        for group in fuse_ops_groups(graph)
        if graph.op_name(group.bit_length() - 1) != "var"
    )
    mod = relax.transform.LegalizeOps()(tvm.IRModule({"main": func}))
    mod = relax.transform.FuseOps()(relax.transform.AnnotateTIROpPattern()(mod))
    theirs: Counter[tuple[str, ...]] = Counter()
    for binding in mod["main"].body.blocks[0].bindings:
        kernels = [_kernel(binding.value)]
        callee = getattr(binding.value, "op", None)
        if isinstance(callee, tvm.ir.GlobalVar):
            inner = mod[callee].body.blocks[0].bindings
            kernels = [_kernel(b.value) for b in inner]
        names = tuple(sorted(filter(None, kernels)))
        if names:
            theirs[names] += 1
    assert ours == theirs


def _legal_name(name: str) -> str:
    return LEGAL_NAMES.get(name, name.removeprefix("nn."))


def _kernel(value: relax.Expr) -> str:
    """The PrimFunc's name without its number."""
    if not isinstance(value, relax.Call) or not value.args:
        return ""
    return str(getattr(value.args[0], "name_hint", "")).rstrip("0123456789")


def test_priority_decides_who_chooses_first() -> None:
    graph = DataflowGraph.from_function(networks.residual_block())
    for order in (["toyregion", "toyop"], ["toyop", "toyregion"]):
        found = greedy(graph, ALL_TARGETS, order)
        validate(graph, found)
        takers = {c.backend for c in found.candidates if not c.inline}
        convs = sum(1 << i for i in range(len(graph)) if graph.op_name(i) == "nn.conv2d")
        owners = {c.backend for c in found.candidates if c.nodes & convs}
        assert owners == {order[0]}, takers


def test_operator_backends_get_one_partition_per_match() -> None:
    graph = DataflowGraph.from_function(networks.resnet50((2, 2)))
    found = single_backend(graph, OPERATOR_TARGET, TVM_TARGET)
    validate(graph, found)
    external = [c for c in found.candidates if c.backend == "toyop"]
    assert len(external) > 4 and all(len(c.composites) == 1 for c in external)


def test_nothing_is_fused_across_a_region() -> None:
    graph = DataflowGraph.from_function(networks.attention_block())
    for target in (REGION_TARGET, OPERATOR_TARGET, TVM_TARGET):
        found = single_backend(graph, target, TVM_TARGET)
        validate(graph, found)
        assert found.origin == f"single:{target.backend}"
