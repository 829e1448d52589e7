"""Lowering keeps the meaning, whatever the partitioning, and gives ordinary Relax BYOC."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from benchmarks.networks.models import random_inputs
from benchmarks.networks.tiny import tiny_bert, tiny_mobilenet
from collage.backends.relax.recurrent import Recurrence
from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.normalize import normalize
from collage.passes.lower import boundary, extract, lower
from collage.search.dataflow import DataflowGraph, bits
from collage.search.rules import default_rules
from collage.search.strategies.without_costs import greedy, single_backend
from collage.targets import resolve_targets
from collage.testing.backend_cases import PatternCase
from tests.backends_tests.recurrent_layers import layer

MODELS = {"mobilenet": tiny_mobilenet, "bert": tiny_bert}
Prepared = tuple[tvm.IRModule, DataflowGraph, list[np.ndarray]]


@pytest.fixture(scope="module", params=MODELS)
def prepared(request: pytest.FixtureRequest) -> Prepared:
    model = MODELS[request.param]()
    imported = load_model(model)
    mod = normalize(imported.mod)
    feeds = random_inputs(model, 3)
    inputs = [feeds[spec.name] for spec in imported.inputs]
    return mod, DataflowGraph.from_function(mod["main"], mod), inputs


@pytest.mark.parametrize("strategy", ["tvm", "onednn", "openblas", "greedy"])
def test_a_lowered_module_computes_the_same(prepared: Prepared, strategy: str) -> None:
    mod, graph, inputs = prepared
    targets = resolve_targets(["onednn", "openblas"])
    if strategy == "greedy":
        partitioning = greedy(graph, targets)
    else:
        chosen = next(t for t in targets if t.backend == strategy)
        partitioning = single_backend(graph, chosen, targets[0])
    lowered = lower(mod, graph, partitioning)
    for got, want in zip(evaluate(lowered, inputs), evaluate(mod, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    codegens = [
        str(func.attrs["Codegen"])
        for func in lowered.functions.values()
        if func.attrs is not None and "Codegen" in func.attrs
    ]
    wanted = [c.backend for c in partitioning.candidates if c.backend != "tvm"]
    assert sorted(codegens) == sorted(wanted)


def test_a_lowered_module_can_be_printed_saved_and_read_back(prepared: Prepared) -> None:
    mod, graph, _ = prepared
    lowered = lower(mod, graph, greedy(graph, resolve_targets(["onednn"])))
    assert "Codegen" in lowered.script()
    again = tvm.ir.load_json(tvm.ir.save_json(lowered))
    tvm.ir.assert_structural_equal(again, lowered)


def test_every_candidate_can_be_extracted_on_its_own(prepared: Prepared) -> None:
    mod, graph, _ = prepared
    found = default_rules(resolve_targets(["onednn", "openblas"])).find(graph)
    checked = 0
    for candidate in found.candidates[:: max(len(found.candidates) // 60, 1)]:
        if candidate.inline:
            continue
        module = extract(mod, graph, candidate)
        inputs, outputs = boundary(graph, candidate.nodes)
        assert [str(p.ty) for p in module["main"].params] == [str(v.ty) for v in inputs]
        ret = module["main"].ret_ty
        results = list(ret.fields) if isinstance(ret, relax.TupleType) else [ret]
        assert len(outputs) == 1 or len(results) == len(outputs)
        assert len(module.functions) == 2
        checked += 1
    assert checked > 20


def test_boundary_lists_inputs_by_first_use_and_only_values_needed_outside(
    prepared: Prepared,
) -> None:
    _, graph, _ = prepared
    inputs, outputs = boundary(graph, graph.all_nodes)
    assert [v.name for v in inputs] == [p.name for p in graph.function.params]
    returned = [graph.bindings[i].var for i in bits(graph.outputs)]
    assert [v.name for v in outputs] == [v.name for v in returned]


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_partition_gives_all_results_of_a_layer(cell: str) -> None:
    """The last operator that its pattern matches gives a tuple, whose items are used apart."""
    one = Recurrence(cell, "bidirectional", 4, 3, 5, "float32", False)
    mod = layer(one, 6, apart=True)
    graph = DataflowGraph.from_function(mod["main"], mod)
    targets = resolve_targets(["onednn"])
    partitioning = single_backend(graph, targets[1], targets[0])
    layers = [c for c in partitioning.candidates if c.backend == "onednn"]
    assert "collage.recurrent" in {graph.op_name(i) for c in layers for i in bits(c.nodes)}
    lowered = lower(mod, graph, partitioning)
    inputs = PatternCase("layer", mod).inputs(np.random.default_rng())
    wanted = evaluate(mod, inputs)
    assert len(wanted) == 1 + one.states
    for got, want in zip(evaluate(lowered, inputs), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
