"""Modules of several functions: split, searched, bundled together and called."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.relax.dpl import is_op, wildcard

import collage
from collage.backends.contract.errors import InputError, ModelError, TargetError
from collage.cli import main
from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.importers.functions import function_alone, public_functions
from collage.testing import constant, graph
from tests.collage_tests.pipeline.flat_costs import FlatCosts

ROWS, WIDTH = 3, 16


def _function(mod: tvm.IRModule, name: str) -> relax.Function:
    return mod["main"].with_attr("global_symbol", name)


@pytest.fixture
def weight() -> np.ndarray:
    return np.random.default_rng().standard_normal((WIDTH, WIDTH)).astype("float32")


@pytest.fixture
def two(weight: np.ndarray) -> tvm.IRModule:
    """``prefill`` and ``decode`` over equal weights; decode hands its cache on."""

    def prefill(emit, x):
        return emit(op.nn.relu(emit(op.matmul(x, relax.const(weight)))))

    def decode(emit, x, cache):
        y = emit(op.matmul(x, relax.const(weight.copy())))
        return relax.Tuple([y, emit(op.concat([cache, y], axis=0)), cache])

    mod = tvm.IRModule()
    mod["prefill"] = _function(graph([(ROWS, WIDTH)], prefill), "prefill")
    mod["decode"] = _function(graph([(1, WIDTH), (ROWS, WIDTH)], decode), "decode")
    return mod


@pytest.mark.parametrize("targets", [["llvm"], ["llvm", "onednn"]])
def test_every_function_is_searched_and_called(
    two: tvm.IRModule, weight: np.ndarray, targets: list[str], tmp_path: Path
) -> None:
    result = collage.optimize(two, targets, cost_model=FlatCosts(targets[-1]))
    bundle = collage.load(result.export(tmp_path / "bundle"))
    assert list(bundle.functions) == ["prefill", "decode"]
    assert [entry.name for entry in bundle.manifest.functions] == ["prefill", "decode"]
    rng = np.random.default_rng()
    x = rng.standard_normal((ROWS, WIDTH)).astype("float32")
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(bundle["prefill"](x), np.maximum(x @ weight, 0), **close)
    np.testing.assert_array_equal(bundle(x), bundle["prefill"](x))
    step = rng.standard_normal((1, WIDTH)).astype("float32")
    y, longer, same = bundle["decode"](x0=step, x1=x)
    np.testing.assert_allclose(y, step @ weight, **close)
    np.testing.assert_allclose(longer, np.concatenate([x, step @ weight]), **close)
    np.testing.assert_array_equal(same, x)
    with pytest.raises(InputError, match="no function 'encode'; its functions: prefill, decode"):
        bundle["encode"]
    report = bundle.report
    assert [one.function for one in (report, *report.others)] == ["prefill", "decode"]
    weights = f"weights of {weight.nbytes / 1024:.1f} KiB, each once; {weight.nbytes / 512:.1f} KiB"
    assert any(weights in remark for remark in report.remarks)
    assert "The other functions" in (bundle.folder / "report.html").read_text(encoding="utf-8")
    if "onednn" in targets:
        # The weights are in the library once, whoever uses them.
        library = (bundle.folder / "model.so").read_bytes()
        assert library.count(weight.tobytes()[:256]) == 1


def test_bundles_of_version_1_load(
    two: tvm.IRModule, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = collage.optimize(two, ["llvm"], cost_model=FlatCosts("llvm")).export(tmp_path / "b")
    assert main(["run", str(folder), "--function", "decode"]) == 0
    assert capsys.readouterr().out.count("output_") == 3
    assert main(["run", str(folder), "--function", "encode"]) != 0
    assert "its functions: prefill, decode" in capsys.readouterr().err
    place = folder / "manifest.json"
    manifest = json.loads(place.read_text(encoding="utf-8"))
    del manifest["functions"]
    place.write_text(json.dumps({**manifest, "schema_version": 1}), encoding="utf-8")
    bundle = collage.load(folder)
    assert list(bundle.functions) == ["prefill"]
    assert bundle(np.ones((ROWS, WIDTH), "float32")).shape == (ROWS, WIDTH)


def test_samples_are_given_by_function(two: tvm.IRModule) -> None:
    with pytest.raises(InputError, match="functions prefill, decode: give samples by function"):
        collage.optimize(
            two, ["llvm"], cost_model=FlatCosts("llvm"), inputs={"x0": np.zeros((ROWS, WIDTH))}
        )


def _with_helper(recursive: bool = False) -> tvm.IRModule:
    """``main`` calls ``twice`` on both sides of an operator; that one is private."""
    twice = graph([(4,)], lambda emit, x: op.add(x, x))["main"].without_attr("global_symbol")
    helper = relax.GlobalVar("twice")
    relax.expr._update_type(helper, relax.FuncType([p.ty for p in twice.params], twice.ret_ty))
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    callee = builder.add_func(twice, "twice")
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.Call(callee, [x]))
            y = builder.emit(op.exp(y))
            y = builder.emit(relax.Call(callee, [y]))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    mod = builder.get()
    if recursive:
        body = mod["twice"]
        y = relax.Var("y", body.ret_ty)
        again = relax.BindingBlock([relax.VarBinding(y, relax.Call(callee, [body.params[0]]))])
        mod["twice"] = relax.Function(body.params, relax.SeqExpr([again], y), body.ret_ty)
    return mod


def test_private_helpers_are_inlined() -> None:
    model = load_model(_with_helper())
    assert [gv.name_hint for gv in model.mod.functions] == ["main"]
    assert len(model.mod["main"].body.blocks) == 1
    x = np.random.default_rng().standard_normal(4).astype("float32")
    (found,) = evaluate(model.mod, [x])
    np.testing.assert_allclose(found, 2 * np.exp(2 * x), rtol=1e-5)


def test_helpers_that_call_themselves_are_refused() -> None:
    with pytest.raises(ModelError, match="'main' calls functions that call themselves"):
        load_model(_with_helper(recursive=True))


def test_a_module_with_nothing_but_main_stays_as_it_is() -> None:
    mod = graph([(4,)], lambda emit, x: op.exp(x))
    assert public_functions(mod) == ["main"]
    assert function_alone(mod, "main").same_as(mod)


def _with_codegen(backend: str) -> tvm.IRModule:
    """A product that is a backend's already, between two operators that are not."""

    def body(emit, x):
        y = emit(op.matmul(emit(op.exp(x)), constant(8, 8, rng=np.random.default_rng(3))))
        return op.tanh(y)

    pattern = is_op("relax.matmul")(wildcard(), wildcard())
    found = [(f"{backend}.matmul", pattern)]
    return relax.transform.FuseOpsByPattern(found, annotate_codegen=True)(graph([(2, 8)], body))


def test_functions_of_a_backend_are_kept(tmp_path: Path) -> None:
    mod = _with_codegen("onednn")
    # oneDNN costs more than anything here: the function is its own because it was given so.
    result = collage.optimize(mod, ["llvm", "onednn"], cost_model=FlatCosts("llvm"))
    codegen = [f for f in result.module.functions.values() if "Codegen" in (f.attrs or {})]
    assert [str(f.attrs["Codegen"]) for f in codegen] == ["onednn"]
    x = np.random.default_rng().standard_normal((2, 8)).astype("float32")
    bundle = collage.load(result.export(tmp_path / "bundle"))
    (expected,) = evaluate(mod, [x])
    np.testing.assert_allclose(bundle(x), expected, rtol=1e-3, atol=1e-3)


def test_functions_of_a_backend_that_is_no_target_are_refused_by_name() -> None:
    with pytest.raises(TargetError, match="'main' calls 'fused_relax_matmul_onednn', which is a"):
        collage.optimize(_with_codegen("onednn"), ["llvm"], cost_model=FlatCosts("llvm"))
