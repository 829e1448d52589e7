"""Models whose course data choose: optimized, bundled, loaded and run, beside onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import collage
from collage.backends.contract.errors import InputError, ModelError, ShapeError
from collage.backends.devices import CPU
from collage.pipeline import import_model
from tests.collage_tests.importers.onnx.onnx_models import by_onnxruntime, fresh, require_same
from tests.collage_tests.pipeline.flat_costs import FlatCosts

_HEAD = '<ir_version: 9, opset_import: ["" : 17]>\n'

MODEL = """
    net (float[4,8] x, float[8,8] w, float limit, bool wide) => (float[M,N] y, int64 rounds) {
        yes = Constant <value = bool {1}> ()
        zero = Constant <value = int64 {0}> ()
        h, rounds = Loop (, yes, x, zero) <
            body = step (int64 i, bool c, float[4,8] s, int64 n)
                => (bool c2, float[4,8] s2, int64 n2)
            { one = Constant <value = int64 {1}> () n2 = Add(n, one)
              p = MatMul(s, w) t = Tanh(p) s2 = Add(s, t)
              a = Abs(s2) m = ReduceMax <keepdims = 0> (a) c2 = Less(m, limit) }>
        y = If (wide) <
            then_branch = yes_ () => (float[4,16] q) { q = Concat <axis = 1> (h, x) },
            else_branch = no_ () => (float[8,8] q) { t2 = Transpose(h) q = MatMul(t2, h) }>
    }
    """


def model() -> onnx.ModelProto:
    return onnx.parser.parse_model(_HEAD + MODEL)


def feed(limit: float, wide: bool) -> dict[str, Any]:
    return {
        "x": fresh(4, 8),
        "w": fresh(8, 8),
        "limit": np.array(limit, "float32"),
        "wide": np.array(wide),
    }


@pytest.mark.parametrize("targets", [["llvm"], ["llvm", "onednn"]])
def test_both_branches_and_any_number_of_rounds(targets: list[str], tmp_path: Path) -> None:
    result = collage.optimize(model(), targets, cost_model=FlatCosts(targets[-1]))
    assert {name.split("_")[0] for name in result.functions} >= {"body", "then", "else"}
    bundle = collage.load(result.export(tmp_path / "bundle"))
    assert [entry.name for entry in bundle.manifest.functions] == ["main"]
    names = ["y", "rounds"]
    assert [info.name for info in bundle.outputs] == names
    assert [info.name for info in bundle.manifest.outputs] == names
    assert [info.name for info in result.outputs] == names
    rounds = set()
    for limit in (-1.0, 3.0, 40.0):
        for wide in (True, False):
            given = feed(limit, wide)
            found = bundle(**given)
            require_same(found, by_onnxruntime(model(), given))
            rounds.add(int(found[1]))
    assert 1 in rounds and max(rounds) > 10


def test_thousands_of_rounds_are_no_deeper_than_few(tmp_path: Path) -> None:
    text = """
        net (int64 n, float[2] x) => (float[2] y) {
            y = Loop (n, , x) <body = step (int64 i, bool c, float[2] h) => (bool c2, float[2] h2)
                { c2 = Identity(c) h2 = Sin(h) }>
        }
        """
    sines = onnx.parser.parse_model(_HEAD + text)
    result = collage.optimize(sines, ["llvm"], cost_model=FlatCosts("tvm"))
    bundle = collage.load(result.export(tmp_path / "bundle"))
    for count in (0, 1, 2, 1023, 1024, 1025, 60_000):
        given = {"n": np.array(count, "int64"), "x": fresh(2)}
        require_same([bundle(**given)], by_onnxruntime(sines, given))


def test_results_that_are_inputs_are_copies(tmp_path: Path) -> None:
    text = """
        net (int64 n, float[2] x) => (float[2] y) {
            y = Loop (n, , x) <body = step (int64 i, bool c, float[2] h) => (bool c2, float[2] h2)
                { c2 = Identity(c) h2 = Sin(h) }>
        }
        """
    result = collage.optimize(
        onnx.parser.parse_model(_HEAD + text), ["llvm"], cost_model=FlatCosts("tvm")
    )
    bundle = collage.load(result.export(tmp_path / "bundle"))
    x = np.ones(2, "float32")
    bundle(np.array(0, "int64"), x)[:] = 7
    assert (x == 1).all()


def test_a_branch_that_shapes_rule_out_is_an_error_when_it_is_taken(tmp_path: Path) -> None:
    text = """
        net (bool c, float[3,4] x, float[4,5] w, float[3,5] v) => (float[3,5] y) {
            y = If (c) <
                then_branch = yes () => (float[3,5] p) { p = MatMul(x, w) },
                else_branch = no () => (float[3,5] p) { p = MatMul(x, v) }>
        }
        """
    net = onnx.parser.parse_model(_HEAD + text)
    result = collage.optimize(net, ["llvm"], cost_model=FlatCosts("tvm"))
    assert any("the else branch" in remark for remark in result.report.remarks)
    bundle = collage.load(result.export(tmp_path / "bundle"))
    x, w, v = fresh(3, 4), fresh(4, 5), fresh(3, 5)
    np.testing.assert_allclose(bundle(np.array(True), x, w, v), x @ w, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"the else branch of y \(If\) does not take"):
        bundle(np.array(False), x, w, v)
    np.testing.assert_allclose(bundle(np.array(True), x, w, v), x @ w, rtol=1e-4, atol=1e-5)


def test_what_is_for_one_function_refuses_models_in_parts() -> None:
    with pytest.raises(ModelError, match="data choose what 'net' computes"):
        import_model(model(), CPU)
    with pytest.raises(InputError, match="samples cannot be given"):
        collage.optimize(
            model(), ["llvm"], cost_model=FlatCosts("tvm"), inputs=feed(1.0, wide=True)
        )
    text = """
        net (bool c, float[n,4] x, float[4,4] w) => (float[n,4] y) {
            y = If (c) <
                then_branch = yes () => (float[n,4] p) { p = MatMul(x, w) },
                else_branch = no () => (float[n,4] p) { p = Neg(x) }>
        }
        """
    with pytest.raises(ShapeError, match="one set of shapes at a time"):
        collage.optimize(
            onnx.parser.parse_model(_HEAD + text),
            ["llvm"],
            cost_model=FlatCosts("tvm"),
            shapes={"x": ["1:2", 4]},
        )
