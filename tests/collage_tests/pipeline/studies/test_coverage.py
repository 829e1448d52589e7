"""What is said before anything is built is what a partitioning does afterwards."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import collage
from benchmarks.networks.tiny import tiny_mobilenet
from collage.backends.devices import CPU
from collage.cli import main
from collage.end_to_end import baselines
from collage.pipeline.imported import import_model
from collage.pipeline.studies.coverage import Coverage
from collage.search.dataflow import bits
from collage.search.rules.host import is_host
from collage.targets import resolve_targets

TARGETS = ["llvm", "onednn", "openblas"]

MIXED = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["" : 17]>
    net (float[2, 16] x, float[16, 16] w) => (float[2, 16] y) {
        a = MatMul(x, w)
        b = Relu(a)
        axis = Constant<value = int64 {1}>()
        y = CumSum(b, axis)
    }"""
)


def _names(groups: tuple[object, ...]) -> set[str]:
    return {name for group in groups for name in group.names}  # type: ignore[attr-defined]


def test_every_operator_is_either_taken_or_refused_with_a_reason() -> None:
    found = collage.coverage(tiny_mobilenet(), TARGETS)
    assert [one.backend for one in found.backends] == ["tvm", "onednn", "openblas"]
    for one in found.backends:
        taken, refused = _names(one.taken), _names(one.refused)
        assert not taken & refused
        assert len(taken) + len(refused) == found.operators
        assert len(taken) == one.operators
        assert all(group.reasons and all(group.reasons) for group in one.refused)
        assert sum(group.flops for group in (*one.taken, *one.refused)) == found.flops
    assert found.of("tvm").operators == found.operators
    assert found.of("tvm").flops_share == 1.0


def test_what_a_backend_alone_gets_it_was_said_to_take() -> None:
    """Against partitionings, which are made in another way: greedily."""
    mod = tiny_mobilenet()
    found = collage.coverage(mod, TARGETS)
    imported = import_model(mod, CPU)
    graph = imported.graph
    for seed in baselines(graph, resolve_targets(TARGETS)):
        for candidate in seed.partitioning.candidates:
            names = {
                str(graph.bindings[index].var.name)
                for index in bits(candidate.nodes)
                if not is_host(graph, index)
            }
            if not candidate.inline:
                assert names <= _names(found.of(candidate.backend).taken)


def test_operations_are_counted_as_by_hand() -> None:
    found = collage.coverage(MIXED, TARGETS)
    product = 2 * 2 * 16 * 16
    assert found.flops == product + 2 * (2 * 16)
    assert found.of("onednn").flops_share == (product + 2 * 16) / found.flops
    (left,) = found.of("onednn").refused
    assert (left.op, left.count, left.reasons) == ("cumsum", 1, ("no pattern matches",))


def test_a_predicate_s_reason_is_told() -> None:
    rng = np.random.default_rng()
    bias = onnx.numpy_helper.from_array(rng.standard_normal((4, 8)).astype("float32"), "bias")
    net = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        net (float[3, 4, 5] x, float[3, 5, 8] w, float[4, 8] bias) => (float[3, 4, 8] y) {
            a = MatMul(x, w)
            y = Add(a, bias)
        }"""
    )
    net.graph.initializer.append(bias)
    del net.graph.input[2]
    groups = collage.coverage(net, TARGETS).of("openblas").refused
    (reason,) = next(group.reasons for group in groups if group.op == "add")
    assert reason.startswith("openblas.matmul_bias: bias of shape (4, 8) is not one value")


def test_an_unknown_backend_names_those_there_are() -> None:
    with pytest.raises(KeyError, match="'onedn' was none of the targets; there is onednn"):
        collage.coverage(MIXED, TARGETS).of("onedn")


def test_the_command_says_the_same_and_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "mixed.onnx"
    onnx.save(MIXED, model)
    want: Coverage = collage.coverage(model, TARGETS)
    arguments = ["coverage", str(model), *(part for name in TARGETS for part in ("-t", name))]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(want.as_dict()))
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "onednn refuses" in shown and "cumsum" in shown and "no pattern matches" in shown
    assert main(["coverage", str(tmp_path / "none.onnx"), "-t", "llvm"]) == 2


def test_it_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/compiler")
    began = time.process_time()
    assert collage.coverage(tiny_mobilenet(), TARGETS).operators > 0
    assert time.process_time() - began < 60
