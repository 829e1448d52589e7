"""Candidates of the default rules on real functions, and each rule's own promises."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.relax.dpl import is_op, is_tuple_get_item, wildcard

from collage.backends.contract import PatternTriple, TargetSet
from collage.backends.contract.errors import TargetError
from collage.search.candidates import Candidate
from collage.search.costs import TableCosts
from collage.search.dataflow import DataflowGraph, bits
from collage.search.partitioning import Partitioning, validate
from collage.search.rules import (
    CombineLimits,
    CombineRule,
    CompositeRule,
    DFPatternRule,
    FuseOpsRule,
    JoinAdjacent,
    JoinByKind,
    OnlyValidRule,
    OpKindRule,
    RegionLimits,
    UnionRule,
    default_rules,
)
from collage.search.strategies.lazy_search import search
from collage.search.strategies.without_costs import single_backend
from collage.search.subgraph import SubGraph, SubGraphLimits
from collage.targets import resolve_targets
from tests.search_tests import networks
from tests.search_tests.toy_backends import (
    ALL_TARGETS,
    OPERATOR_TARGET,
    REGION_TARGET,
    TVM_TARGET,
)

BUILDS: dict[str, Callable[[], relax.Function]] = {
    "residual": networks.residual_block,
    "inception": networks.inception_block,
    "attention": networks.attention_block,
    "resnet": lambda: networks.resnet50((2, 2)),
}


def ops(graph: DataflowGraph, nodes: int) -> list[str]:
    return [graph.op_name(i) for i in bits(nodes)]


@pytest.mark.parametrize("name", BUILDS)
def test_every_candidate_can_stand_alone(name: str) -> None:
    func = BUILDS[name]()
    graph = DataflowGraph.from_function(func)
    found = default_rules(ALL_TARGETS).find(graph)
    covered = 0
    for candidate in found.candidates:
        covered |= candidate.nodes
        assert SubGraph(graph, candidate.nodes).is_convex
        assert bool(candidate.composites) == (candidate.backend != "tvm")
        done = 0
        for composite in candidate.composites:
            sub = SubGraph(graph, composite.nodes)
            assert not composite.nodes & done
            assert sub.input & candidate.nodes & ~done == 0
            assert sub.exit.bit_count() == 1
            done |= composite.nodes
        assert done in (0, candidate.nodes)
    assert covered == graph.all_nodes
    keys = [(c.nodes, c.target, c.inline) for c in found.candidates]
    assert len(keys) == len(set(keys))
    assert default_rules(ALL_TARGETS).find(DataflowGraph.from_function(func)) == found


@pytest.mark.parametrize("name", BUILDS)
def test_candidates_cover_and_search_end_to_end(name: str) -> None:
    graph = DataflowGraph.from_function(BUILDS[name]())
    found = default_rules(ALL_TARGETS).find(graph)
    speed = {"tvm": 2.0, "toyregion": 1.0, "toyop": 1.1}
    table = {c: 0.2 + speed[c.backend] * c.nodes.bit_count() for c in found.candidates}
    result = search(graph, found.candidates, TableCosts(table)).partitioning
    assert result is not None
    validate(graph, result)
    for target in ALL_TARGETS:
        alone = single_backend(graph, target, TVM_TARGET)
        seconds = sum(
            0.0 if c.inline else 0.2 + speed[c.backend] * c.nodes.bit_count()
            for c in alone.candidates
        )
        assert result.seconds is not None and result.seconds <= seconds + 1e-9


def test_alternatives_of_every_size_are_there() -> None:
    graph = DataflowGraph.from_function(networks.residual_block())
    found = default_rules(ALL_TARGETS).find(graph)
    sizes = {
        len(ops(graph, c.nodes))
        for c in found.candidates
        if c.backend == "toyregion"
        and len(c.composites) == 1
        and "nn.conv2d" in ops(graph, c.nodes)
    }
    assert sizes == {1, 2, 3, 4}


def test_regions_hold_blocks_and_maximal_pieces() -> None:
    graph = DataflowGraph.from_function(networks.resnet50((2, 2)))
    found = default_rules(ALL_TARGETS).find(graph)
    region = [c for c in found.candidates if c.backend == "toyregion"]
    rules = {c.rule for c in region}
    assert {"joined", "block", "maximal", "piece"} <= rules
    alone = single_backend(graph, REGION_TARGET, TVM_TARGET)
    greedy_regions = {c.nodes for c in alone.candidates if c.backend == "toyregion"}
    assert greedy_regions <= {c.nodes for c in region}
    # Each residual block, from the add before it to its own, with a shortcut of its own or not.
    adds = [i for i in range(len(graph)) if _is_residual_add(graph, i)]
    wanted = {4: 0, 3: 0}
    for before, after in pairwise(adds):
        nodes = graph.ancestors(after) & ~graph.ancestors(before) | 1 << after | 1 << after + 1
        nodes &= ~(1 << before | 1 << before + 1)
        assert ops(graph, nodes)[-1] == "nn.relu"
        assert nodes in {c.nodes for c in region}
        wanted[ops(graph, nodes).count("nn.conv2d")] += 1
    assert all(wanted.values())
    assert max(len(c.composites) for c in region if c.rule == "joined") == 3


def _is_residual_add(graph: DataflowGraph, index: int) -> bool:
    return graph.op_name(index) == "add" and graph.preds(index).bit_count() == 2


def test_region_limits_bound_the_number() -> None:
    graph = DataflowGraph.from_function(networks.resnet50())
    few = RegionLimits(max_joined=2, max_small_per_composite=1, max_blocks=3, max_cuts=2)
    counts = []
    for limits in (few, RegionLimits()):
        found = default_rules(TargetSet(TVM_TARGET, (REGION_TARGET,)), limits).find(graph)
        counts.append(sum(len(c.composites) > 1 for c in found.candidates))
    assert 0 < counts[0] < counts[1] < 300


def test_wide_operators_are_not_joined_with_some_of_their_branches() -> None:
    for branches in (2, 4, 20):
        graph = DataflowGraph.from_function(networks.wide(branches))
        found = default_rules(TargetSet(TVM_TARGET, (REGION_TARGET,))).find(graph)
        names = [ops(graph, c.nodes) for c in found.candidates if c.rule == "joined"]
        joined = any("concat" in n[:-1] and n.count("nn.conv2d") > 1 for n in names)
        assert joined == (branches == 2)
        assert len(found.candidates) < 6 * len(graph)


def test_a_thousand_bindings_take_seconds() -> None:
    graph = DataflowGraph.from_function(networks.bert(33))
    assert len(graph) > 950
    begin = time.perf_counter()
    found = default_rules(ALL_TARGETS).find(graph)
    assert time.perf_counter() - begin < 15
    assert len(found.candidates) < 5000


def test_predicates_answer_with_a_reason() -> None:
    graph = DataflowGraph.from_function(
        networks.function((1, 3, 8, 8), lambda net, x: net.conv(x, 4, 7, relu=True))
    )
    found = default_rules(ALL_TARGETS).find(graph)
    reasons = {(r.backend, r.pattern, r.reason) for r in found.rejections}
    assert ("toyregion", "toyregion.conv2d_bias_relu", "kernel 7 is too large") in reasons
    node = next(r.node for r in found.rejections if r.pattern == "toyregion.conv2d_bias_relu")
    assert graph.op_name(node) == "nn.relu"
    assert not any("nn.conv2d" in ops(graph, c.nodes) for c in found.candidates if c.composites)


def test_values_used_elsewhere_are_not_swallowed() -> None:
    def body(net: networks.Net, x: relax.Var) -> tuple[relax.Var, ...]:
        y = net.emit(op.nn.relu(x))
        return net.emit(op.exp(y)), y

    graph = DataflowGraph.from_function(networks.function((2,), body))
    pattern = is_op("relax.exp")(is_op("relax.nn.relu")(wildcard()))
    found = DFPatternRule(PatternTriple("toyop.relu_exp", pattern), OPERATOR_TARGET).find(graph)
    assert not found.candidates
    assert "nn.relu" in found.rejections[0].reason and "elsewhere" in found.rejections[0].reason


def test_what_a_pattern_ends_with_decides_nothing_but_where_it_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def body(net: networks.Net, x: relax.Var) -> relax.Var:
        parts = net.emit(op.split(net.conv(x, 8, 3, relu=True), 2, axis=1))
        first, second = (net.emit(relax.TupleGetItem(parts, i)) for i in range(2))
        gated = net.emit(op.multiply(net.emit(op.sigmoid(first)), second))
        small = net.emit(op.divide(gated, relax.const(3.0)))
        pooled = net.emit(op.nn.max_pool2d(small, 2, strides=2))
        mean = net.emit(op.mean(pooled, [2, 3]))
        return net.emit(op.nn.softmax(net.dense(net.emit(op.nn.gelu(net.dense(mean, 7))), 5)))

    graph = DataflowGraph.from_function(networks.function((1, 4, 8, 8), body))
    wanted = wildcard().has_dtype("float32")
    several = (
        is_op("relax.sigmoid")(wanted) | is_op("relax.divide")(wanted, wildcard())
    ).has_dtype("float32")
    patterns = [several, several | wildcard(), is_tuple_get_item(wildcard(), 1), wildcard()]
    triples = [PatternTriple(f"toyop.p{i}", pattern) for i, pattern in enumerate(patterns)]
    rules = [DFPatternRule(triple, OPERATOR_TARGET) for triple in triples]
    for target in resolve_targets(["llvm", "onednn", "openblas"]).external:
        rules += [DFPatternRule(t, target) for t in target.implementation.patterns(target)]
    found = [rule.find(graph) for rule in rules]
    assert len(rules) > 50 and sum(len(one.candidates) for one in found) > 20
    monkeypatch.setattr("collage.search.rules.dfpattern.root_operators", lambda pattern: None)
    assert [rule.find(graph) for rule in rules] == found


def test_union_keeps_the_first_of_equals() -> None:
    graph = DataflowGraph.from_function(networks.function((2,), lambda net, x: net.emit(op.exp(x))))
    triple = PatternTriple("toyop.exp", is_op("relax.exp")(wildcard()))
    rule = DFPatternRule(triple, OPERATOR_TARGET)
    both = UnionRule([CompositeRule(rule, "toyop.first"), CompositeRule(rule, "toyop.second")])
    (only,) = both.find(graph).candidates
    assert only.rule == "toyop.first" and only.composites[0].name == "toyop.first"


def test_only_valid_keeps_to_limits() -> None:
    graph = DataflowGraph.from_function(networks.residual_block())
    fused = FuseOpsRule(TVM_TARGET)
    assert max(len(ops(graph, c.nodes)) for c in fused.find(graph).candidates) == 4
    small = OnlyValidRule(fused, SubGraphLimits(max_nodes=3)).find(graph).candidates
    assert small and all(len(ops(graph, c.nodes)) <= 3 for c in small)


def test_kinds_decide_what_tvm_fuses() -> None:
    def body(net: networks.Net, x: relax.Var) -> relax.Var:
        y = net.emit(op.exp(net.emit(op.permute_dims(net.conv(x, 4), [0, 1, 3, 2]))))
        return net.emit(op.sum(y, [2, 3]))

    graph = DataflowGraph.from_function(networks.function((1, 4, 4, 4), body))
    limits = CombineLimits(max_parts=6, max_per_seed=50)
    rule = CombineRule(OpKindRule(TVM_TARGET), JoinByKind(), limits, "by_kind")
    groups = {tuple(ops(graph, c.nodes)) for c in rule.find(graph).candidates}
    assert groups == {
        ("nn.conv2d", "add"),
        ("add", "permute_dims"),
        ("add", "permute_dims", "exp"),
        ("permute_dims", "exp"),
        ("permute_dims", "exp", "sum"),
        ("exp", "sum"),
        ("add", "permute_dims", "exp", "sum"),
    }


def test_joins_grow_with_the_number_of_parts() -> None:
    graph = DataflowGraph.from_function(networks.function((2,), lambda net, x: _chain(net, x, 5)))
    single = OpKindRule(TVM_TARGET)
    for parts, expected in ((2, 4), (3, 7), (5, 10)):
        rule = CombineRule(single, JoinAdjacent(), CombineLimits(parts, 100), "joined")
        assert len(rule.find(graph).candidates) == expected


def _chain(net: networks.Net, x: relax.Var, length: int) -> relax.Var:
    for _ in range(length):
        x = net.emit(op.exp(x))
    return x


def test_what_stays_in_main_is_inline() -> None:
    def body(net: networks.Net, x: relax.Var) -> relax.Var:
        parts = net.emit(op.split(x, 2))
        y = net.emit(op.add(net.emit(parts[0]), net.emit(parts[1])))
        return net.emit(op.reshape(y, (2, 1)))

    graph = DataflowGraph.from_function(networks.function((4,), body))
    found = default_rules(TargetSet(TVM_TARGET)).find(graph)
    inline = {graph.op_name(c.nodes.bit_length() - 1) for c in found.candidates if c.inline}
    assert inline == {"tuple_get_item", "reshape", "var"}
    not_inline = {tuple(ops(graph, c.nodes)) for c in found.candidates if not c.inline}
    # A reshape may also be part of a kernel; a tuple item alone is never one.
    assert ("reshape",) in not_inline and ("tuple_get_item",) not in not_inline


def test_no_partition_takes_a_tuple() -> None:
    """``FuseOps`` passes a split's result into a kernel; a partition's inputs are tensors."""

    def body(net: networks.Net, x: relax.Var) -> relax.Var:
        parts = net.emit(op.split(net.dense(x, 12), 3, axis=-1))
        a, b, c = (net.emit(op.nn.relu(net.emit(parts[i]))) for i in range(3))
        return net.emit(op.add(net.emit(op.multiply(a, b)), c))

    graph = DataflowGraph.from_function(networks.function((2, 8), body))
    found = default_rules(ALL_TARGETS).find(graph).candidates
    made = [*found, *single_backend(graph, TVM_TARGET, TVM_TARGET).candidates]
    taking = [c for c in made if SubGraph(graph, c.nodes).takes_tuples]
    assert taking and all(c.inline for c in taking)


def test_calls_of_compiled_functions_stay_in_main() -> None:
    """A module that was partitioned before keeps its Codegen functions."""
    func = networks.residual_block()
    mod = tvm.IRModule({"main": func})
    pattern = ("toyregion.add", is_op("relax.add")(wildcard(), wildcard()))
    mod = relax.transform.FuseOpsByPattern([pattern], annotate_codegen=True)(mod)
    graph = DataflowGraph.from_function(mod["main"])
    calls = [i for i in range(len(graph)) if graph.op_name(i).startswith("call:")]
    assert calls
    found = default_rules(ALL_TARGETS).find(graph)
    for index in calls:
        touching = [c for c in found.candidates if c.nodes >> index & 1]
        assert [(c.nodes, c.inline) for c in touching] == [(1 << index, True)]
    result = search(graph, found.candidates, TableCosts(dict.fromkeys(found.candidates, 1.0)))
    assert isinstance(result.partitioning, Partitioning)


def test_some_target_must_compile_through_tvm() -> None:
    with pytest.raises(TargetError, match="compile through TVM"):
        TargetSet.of([REGION_TARGET])


def test_candidates_print_their_backend() -> None:
    assert Candidate(1, OPERATOR_TARGET).backend == "toyop"
