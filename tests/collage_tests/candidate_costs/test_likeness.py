"""Candidates that are said to be alike are the same workload, and the others are not lost."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.networks.models import light_model
from benchmarks.networks.tiny import tiny_bert
from collage.backends.devices import CPU
from collage.backends.relax.trees import Branches, packed, tree_ensemble
from collage.candidate_costs.likeness import Likenesses
from collage.cost.workload.workload import Workload
from collage.passes import extract
from collage.pipeline import import_model
from collage.pipeline.candidates import find_candidates
from collage.search.candidates import Candidate, Composite
from collage.search.dataflow import DataflowGraph
from collage.targets import resolve_targets
from collage.testing import constant, graph

TARGETS = resolve_targets(["llvm", "onednn", "openblas"])
TVM, ONEDNN, _ = TARGETS


@pytest.mark.parametrize("name", ["bert", "squeezenet", "inception_v1"])
def test_alike_are_those_with_one_key(name: str) -> None:
    imported = import_model(tiny_bert() if name == "bert" else light_model(name), CPU)
    found = find_candidates(imported.graph, TARGETS).candidates
    likenesses = Likenesses(imported.graph, {})
    keys = defaultdict(set)
    chosen = [c for c in found if not c.inline]
    # Of some hundred candidates of each network: to extract them is what likeness spares.
    for candidate in chosen[:: max(1, len(chosen) // 150)]:
        module = extract(imported.mod, imported.graph, candidate)
        workload = Workload.from_module(module)
        keys[likenesses.of(candidate)].add((workload.key, candidate.target.name))
    assert all(len(same) == 1 for same in keys.values())
    distinct = {next(iter(same)) for same in keys.values()}
    assert len(keys) <= 1.2 * len(distinct)


def _pair(second: relax.Expr, first: relax.Expr | None = None) -> tvm.IRModule:
    first = relax.const(np.float32(1.0)) if first is None else first
    return graph([(8, 8)], lambda emit, x: op.add(emit(op.add(x, first)), second))


def _like(mod: tvm.IRModule, a: Candidate, b: Candidate) -> bool:
    likenesses = Likenesses(DataflowGraph.from_function(mod["main"]), {})
    return likenesses.of(a) == likenesses.of(b)


def test_what_a_workload_keeps_of_constants_counts() -> None:
    a, b = Candidate(0b01, TVM), Candidate(0b10, TVM)
    one = np.float32(1.0)
    assert _like(_pair(relax.const(one)), a, b)
    assert not _like(_pair(relax.const(np.float32(2.0))), a, b)
    # Weights count by shape and type.
    assert _like(_pair(constant(8, 8), constant(8, 8)), a, b)
    assert not _like(_pair(constant(1, 8), constant(8, 8)), a, b)


def _forest(depth_first: bool) -> list[relax.Expr]:
    """2047 nodes whose links have one range: a chain down one side, or the other."""
    inner, count = 1023, 2047
    nodes = np.arange(count)
    chain, leaves = np.minimum(nodes + 1, count - 1), np.minimum(nodes + inner, count - 1)
    below, above = (chain, leaves) if depth_first else (leaves, chain)
    is_leaf = nodes >= inner
    branches = Branches(
        np.where(is_leaf, 0, nodes % 2),
        np.zeros(count, "float32"),
        np.where(is_leaf, nodes, below),
        np.where(is_leaf, nodes, above),
    )
    values = np.where(is_leaf, 0.5, 0).astype("float32")
    return [relax.const(table) for table in packed(branches, np.array([0]), values=values)]


def test_trees_are_alike_that_lead_to_the_same_places() -> None:
    def pair(first: list[relax.Expr], second: list[relax.Expr]) -> tvm.IRModule:
        def build(emit, x):  # type: ignore[no-untyped-def]
            one = emit(tree_ensemble([x, *first], 2))
            return op.add(one, emit(tree_ensemble([one, *second], 2)))

        return graph([(8, 2)], build)

    a, b = Candidate(0b01, TVM), Candidate(0b10, TVM)
    assert _like(pair(_forest(True), _forest(True)), a, b)
    assert not _like(pair(_forest(True), _forest(False)), a, b)


def test_attributes_order_outputs_and_targets_count() -> None:
    mod = graph(
        [(8, 8)],
        lambda emit, x: op.multiply(
            emit(op.nn.softmax(x, axis=0)), emit(op.nn.softmax(emit(op.nn.softmax(x)), axis=1))
        ),
    )
    first, second = (Candidate(1 << index, TVM) for index in range(2))
    assert not _like(mod, first, second)
    assert _like(mod, second, Candidate(second.nodes, TVM, rule="another"))
    assert not _like(mod, second, Candidate(second.nodes, ONEDNN))
    mod = graph([(8, 8)], lambda emit, x: op.subtract(emit(op.subtract(x, emit(op.abs(x)))), x))
    # Twice the same operator, but of the two it reads the other comes first.
    assert not _like(mod, Candidate(0b011, TVM), Candidate(0b110, TVM))


def test_one_value_read_twice_is_not_two() -> None:
    def build(emit, x, y):  # type: ignore[no-untyped-def]
        both = emit(op.add(x, y))
        return op.add(emit(op.add(both, both)), x)

    mod = graph([(8,), (8,)], build)
    singles = [Candidate(1 << index, TVM) for index in range(3)]
    assert not _like(mod, singles[0], singles[1])
    assert _like(mod, singles[0], singles[2])


def test_composites_count() -> None:
    mod = graph([(8, 8)], lambda emit, x: op.nn.relu(emit(op.matmul(x, constant(8, 8)))))
    fused = Candidate(0b11, ONEDNN, (Composite("onednn.matmul_relu", 0b11),))
    apart = Candidate(
        0b11, ONEDNN, (Composite("onednn.matmul", 0b01), Composite("onednn.relu", 0b10))
    )
    assert not _like(mod, fused, apart)
