"""What is pinned and banned holds for all that is compared, or is refused with the reason."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from tvm import relax

import collage
from benchmarks.networks.tiny import tiny_mobilenet
from collage.backends.contract.errors import RestrictionError
from collage.backends.devices import CPU
from collage.bundle import read_report
from collage.cli import main
from collage.cli.terminal.options import parse_wishes
from collage.end_to_end import baselines
from collage.pipeline.imported import Imported, import_model
from collage.pipeline.restrict import restrict
from collage.report.explain import explain
from collage.search.dataflow import bits
from collage.search.partitioning import Partitioning
from collage.targets import resolve_targets
from tests.collage_tests.conftest import TARGETS
from tests.collage_tests.pipeline.flat_costs import FlatCosts

MIXED = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[2, 16] x, float[16, 16] w) => (float[2, 16] y) {
        a = MatMul(x, w)
        b = Relu(a)
        axis = Constant<value = int64 {1}>()
        c = CumSum(b, axis)
        y = Softmax<axis = 1>(c)
    }"""


@pytest.fixture(scope="module")
def mobile() -> Imported:
    return import_model(tiny_mobilenet(), CPU)


def _runs_on(imported: Imported, partitioning: Partitioning) -> dict[int, str]:
    return {
        index: candidate.backend
        for candidate in partitioning.candidates
        if not candidate.inline
        for index in bits(candidate.nodes)
    }


@pytest.mark.parametrize(
    ("pin", "ban"),
    [
        ({"nn.conv2d": "onednn"}, {}),
        ({"nn.conv2d": "tvm"}, {}),
        ({"matmul": "openblas"}, {"nn.conv2d": "onednn"}),
        ({}, {"*": "onednn"}),
        ({}, {"nn.*": ["onednn", "openblas"]}),
        ({"nn.conv2d": ["onednn", "openblas"]}, {}),
    ],
)
def test_every_contender_keeps_to_them(
    mobile: Imported, pin: dict[str, str], ban: dict[str, str]
) -> None:
    targets = resolve_targets(TARGETS)
    graph = mobile.graph
    wishes = restrict(graph, targets, pin, ban)
    contenders = baselines(graph, targets, wishes.restrictions)
    assert contenders
    for contender in contenders:
        for index, backend in _runs_on(mobile, contender.partitioning).items():
            op = graph.op_name(index)
            for pattern, wanted in pin.items():
                assert op != pattern or backend in wanted, contender.name
            for pattern, unwanted in ban.items():
                matches = re.fullmatch(pattern.replace(".", r"\.").replace("*", ".*"), op)
                assert not matches or backend not in unwanted, contender.name


def test_random_wishes_hold_or_are_refused(mobile: Imported) -> None:
    """Whatever is drawn: nothing that is compared breaks a wish."""
    graph, targets = mobile.graph, resolve_targets(TARGETS)
    rng = np.random.default_rng()
    ops = sorted({graph.op_name(index) for index in range(len(graph))} - {"tuple"})
    for _ in range(12):
        pin = {str(op): str(rng.choice(targets.names)) for op in rng.choice(ops, 2, replace=False)}
        ban = {str(rng.choice(ops)): str(rng.choice(targets.names))}
        try:
            wishes = restrict(graph, targets, pin, ban)
        except RestrictionError as error:
            assert "nobody who may can run" in str(error) or "matches no operator" in str(error)
            continue
        for contender in baselines(graph, targets, wishes.restrictions):
            for index, backend in _runs_on(mobile, contender.partitioning).items():
                op = graph.op_name(index)
                free = op in ("reshape", "flatten", "squeeze", "expand_dims", "nn.batch_flatten")
                assert pin.get(op, backend) == backend or (free and backend == "tvm")
                assert ban.get(op) != backend or (free and backend == "tvm")


def test_a_search_keeps_to_them_and_says_so(tmp_path: Path) -> None:
    result = collage.optimize(
        tiny_mobilenet(),
        TARGETS,
        pin={"nn.conv2d": "onednn"},
        ban={"matmul": ["onednn", "tvm"]},
        cost_model=FlatCosts("onednn"),
    )
    nodes = {node.index: node.op for node in result.report.nodes}
    chosen = {
        nodes[index]: part.backend
        for part in result.report.partitions
        if not part.inline
        for index in part.nodes
    }
    assert chosen["nn.conv2d"] == "onednn" and chosen["matmul"] == "openblas"
    convolutions = sum(op == "nn.conv2d" for op in nodes.values())
    assert f"pinned nn.conv2d to onednn ({convolutions} operators)" in result.report.remarks
    assert "banned matmul from onednn, tvm (1 operator)" in result.report.remarks
    # Single backends too: none of them is what it was called, and all are still compared.
    assert {row.name for row in result.report.end_to_end} >= {"search", "greedy"}
    why = {
        other.reason
        for node in explain(result.report)
        if nodes[node.node] == "nn.conv2d"
        for other in node.others
    }
    assert any("pinned to onednn by 'nn.conv2d'" in reason for reason in why)
    image = np.random.default_rng().standard_normal((1, 3, 32, 32)).astype("float32")
    free = collage.optimize(
        tiny_mobilenet(), ["llvm"], strategy="single:tvm", cost_model=FlatCosts("onednn")
    )
    want = collage.load(free.export(tmp_path / "free"))(image)
    found = collage.load(result.export(tmp_path / "pinned"))(image)
    np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-4 * float(np.abs(want).max()))


@pytest.mark.parametrize(
    ("pin", "ban", "message"),
    [
        ({"nn.softmx": "onednn"}, {}, "pin 'nn.softmx' matches no operator; did you mean nn.soft"),
        ({}, {"conv9*": "onednn"}, "ban 'conv9\\*' matches no operator; there is matmul, nn.relu"),
        ({"matmul": "onedn"}, {}, "pin 'matmul': 'onedn' is none of the targets; there is onednn"),
        ({"matmul": []}, {}, "pin 'matmul' names no backend"),
        (
            {"cumsum": "onednn"},
            {},
            r"nobody who may can run cumsum \(tvm: pinned to onednn by 'cumsum', onednn: no "
            "pattern matches, openblas: pinned",
        ),
        (
            {"nn.softmax": "onednn"},
            {"nn.softmax": "onednn"},
            r"onednn: banned by 'nn.softmax'",
        ),
    ],
)
def test_what_cannot_be_is_one_error_that_says_why(
    pin: dict[str, str], ban: dict[str, str], message: str
) -> None:
    with pytest.raises(RestrictionError, match=message):
        collage.optimize(onnx.parser.parse_model(MIXED), TARGETS, pin=pin, ban=ban)


def test_names_of_onnx_nodes_are_kept() -> None:
    model = tiny_mobilenet()
    for number, node in enumerate(model.graph.node):
        part = "backbone" if number < 8 else "head"
        node.name = f"/{part}/layer{number}.0/{node.op_type}"
    imported = import_model(model, CPU)
    targets = resolve_targets(TARGETS)
    wishes = restrict(imported.graph, targets, {"backbone.*": "onednn"}, {"head.*": "onednn"})
    pinned = wishes.restrictions.closed["tvm"]
    banned = wishes.restrictions.closed["onednn"]
    assert pinned and banned and not set(pinned) & set(banned)
    convolutions = [
        i for i in range(len(imported.graph)) if imported.graph.op_name(i) == "nn.conv2d"
    ]
    assert set(convolutions) <= set(pinned) | set(banned)
    assert convolutions[0] in pinned


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_last_node_goes_by_its_own_name(outputs: int) -> None:
    model = onnx.parser.parse_model(MIXED)
    model.graph.node[-1].name = "/head/Softmax"
    model.graph.node[0].name = "/body/MatMul"
    if outputs == 2:
        last = model.graph.node.add(op_type="Exp", input=["y"], output=["z"], name="/side/Exp")
        model.graph.output.append(onnx.helper.make_tensor_value_info(last.output[0], 1, (2, 16)))
    imported = import_model(model, CPU)
    graph = imported.graph
    (softmax,) = (i for i in range(len(graph)) if graph.op_name(i) == "nn.softmax")
    targets = resolve_targets(TARGETS)
    for name in ("/head/Softmax", "head.Softmax"):
        wishes = restrict(graph, targets, {name: "onednn"}, None)
        assert set(wishes.restrictions.closed["tvm"]) == {softmax}
    relax.analysis.well_formed(imported.mod)


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("layers[0]/fc[a]/MatMul", "matmul"),
        ("layers[0].fc[a]*", "matmul"),
        ("*fc[[]a]*", "matmul"),
        ("layers[1].Relu[1]", "nn.relu"),
        ("layers[1].Relu[1]*", "nn.relu"),
        ("layers[1]*", "nn.relu"),
        ("layers[2-9]*", "nn.softmax"),
        ("layers[[]*", None),
        ("*[ab]??MatMul", "matmul"),
    ],
)
def test_brackets_are_a_names_own_or_a_shells(pattern: str, matched: str | None) -> None:
    model = onnx.parser.parse_model(MIXED)
    names = {"MatMul": "layers[0]/fc[a]/MatMul", "Relu": "layers[1].Relu[1]", "Softmax": "layers3"}
    for node in model.graph.node:
        node.name = names.get(node.op_type, "other")
    graph = import_model(model, CPU).graph
    targets = resolve_targets(TARGETS)
    wishes = restrict(graph, targets, {pattern: "tvm"}, None)
    found = {graph.op_name(index) for index in wishes.restrictions.closed["onednn"]}
    assert found == ({matched} if matched else {"matmul", "nn.relu"})


def test_the_command_takes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "mixed.onnx"
    onnx.save(onnx.parser.parse_model(MIXED), model)
    common = ["optimize", str(model), "-t", "llvm", "-t", "onednn", "-o", str(tmp_path / "b")]
    wishes = ["--pin", "matmul=tvm", "--ban", "nn.*=onednn"]
    assert main([*common, *wishes, "--single-backend", "onednn"]) == 0
    report = read_report(tmp_path / "b")
    assert {part.backend for part in report.partitions if not part.inline} == {"tvm"}
    assert "pinned matmul to tvm (1 operator)" in report.remarks
    capsys.readouterr()
    assert main([*common, "--pin", "matmul"]) == 2
    assert "--pin 'matmul': write PATTERN=BACKEND" in capsys.readouterr().err


def test_one_pattern_may_name_several_backends() -> None:
    wishes = parse_wishes("--pin", ["a=b", "a=c", "x=y=z"])
    assert wishes == {"a": ["b", "c"], "x=y": ["z"]}
