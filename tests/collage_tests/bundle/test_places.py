"""Inputs that choose elements of a tensor: what there is not is an error before the call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.contract.errors import InputError
from collage.bundle.signature import Places
from collage.importers import load_model
from collage.pipeline.inputs.places import places_of
from collage.testing import graph
from tests.collage_tests.pipeline.flat_costs import FlatCosts

ROWS = 5


def _tables(rows: str = "2") -> onnx.ModelProto:
    """Two tables of which the second is smaller, and a number that is computed with."""
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        net (int64[{rows}, 3] ids, int64[{rows}, 3] other, float[5, 4] w, float[3, 4] v)
            => (float[{rows}, 3, 4] y)
        {{
            a = Gather(w, ids)
            b = Gather(v, ids)
            one = Constant<value_int = 1>()
            moved = Sub(other, one)
            c = Gather(w, moved)
            ab = Add(a, b)
            y = Add(ab, c)
        }}"""
    )


def test_the_least_of_all_tables_counts_and_what_is_computed_with_may_be_any() -> None:
    # ONNX counts negative places from the end.
    assert places_of(load_model(_tables()).mod) == (Places(input=0, low=-3, high=2),)


def test_what_is_clipped_on_purpose_may_be_any() -> None:
    def body(mode: str) -> Any:
        return lambda emit, x, i: op.take(x, emit(op.reshape(i, (6,))), 0, mode)

    kinds = ["float32", "int32"]
    assert places_of(graph([(ROWS, 4), (2, 3)], body("clip"), kinds)) == ()
    assert places_of(graph([(ROWS, 4), (2, 3)], body("fast"), kinds)) == (Places(1, 0, ROWS - 1),)


def test_elements_that_are_gathered_are_places() -> None:
    def body(_: Any, x: relax.Var, i: relax.Var) -> relax.Expr:
        return op.gather_elements(x, i, 1)

    assert places_of(graph([(2, 7), (2, 3)], body, ["float32", "int64"])) == (Places(1, 0, 6),)


def _bundle(folder: Path, **options: Any) -> collage.Bundle:
    costs = FlatCosts("tvm")
    net = _tables("n" if options else "2")
    result = collage.optimize(net, ["llvm"], strategy="single:tvm", cost_model=costs, **options)
    return collage.load(result.export(folder))


def _inputs(rows: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng()
    return {
        "ids": rng.integers(-3, 3, (rows, 3)),
        "other": rng.integers(1, ROWS + 1, (rows, 3)),
        "w": rng.standard_normal((ROWS, 4)).astype("float32"),
        "v": rng.standard_normal((3, 4)).astype("float32"),
    }


def _expected(given: dict[str, np.ndarray]) -> np.ndarray:
    ids, other, w, v = given.values()
    return w[ids] + v[ids] + w[other - 1]


def test_places_that_there_are_not_are_named(tmp_path: Path) -> None:
    bundle, given = _bundle(tmp_path / "net.bundle"), _inputs()
    np.testing.assert_allclose(bundle(**given), _expected(given), rtol=1e-6)
    for wrong in (3, -4, 2**40):
        ids = given["ids"].copy()
        ids[1, 2] = wrong
        for made in (ids, tvm.runtime.tensor(ids)):
            with pytest.raises(
                InputError,
                match=rf"^input 'ids' has {wrong} at \[1, 2\]: it chooses one of -3 to 2$",
            ):
                bundle(**{**given, "ids": made})
    # What is computed with first is not known beforehand: the nearest place is taken.
    far = {**given, "other": np.full((2, 3), 100)}
    near = {**given, "other": np.full((2, 3), ROWS)}
    np.testing.assert_allclose(bundle(**far), _expected(near), rtol=1e-6)


def test_inputs_of_ones_own_lie_inside(tmp_path: Path) -> None:
    net = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        net (int64[9] i, float[1, 4] w) => (float[9, 4] y) { y = Gather(w, i) }"""
    )
    result = collage.optimize(net, ["llvm"], strategy="single:tvm", cost_model=FlatCosts("tvm"))
    bundle = collage.load(result.export(tmp_path / "net.bundle"))
    (places, _) = bundle.random_inputs()
    assert not places.any()
    assert len(bundle.benchmark(repeat=1)) == 1


def test_of_each_bucket_and_between_them(tmp_path: Path) -> None:
    bundle = _bundle(tmp_path / "net.bundle", shapes={"ids": ["1|4", 3], "other": ["1|4", 3]})
    for rows in (1, 3, 4):
        given = _inputs(rows)
        np.testing.assert_allclose(bundle(**given), _expected(given), rtol=1e-6)
        given["ids"][0, 0] = 3
        with pytest.raises(InputError, match=r"has 3 at \[0, 0\]"):
            bundle(**given)


@pytest.mark.torch
def test_tokens_of_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    net = torch.nn.Embedding(50, 8).eval()
    tokens = torch.randint(0, 50, (2, 9))
    result = collage.optimize(
        net,
        ["llvm"],
        example_inputs=(tokens,),
        strategy="single:tvm",
        cost_model=FlatCosts("tvm"),
    )
    bundle = collage.load(result.export(tmp_path / "net.bundle"))
    with torch.no_grad():
        torch.testing.assert_close(bundle(tokens), net(tokens))
    tokens[0, 4] = 50
    with pytest.raises(InputError, match=r"has 50 at \[0, 4\]: it chooses one of 0 to 49"):
        bundle(tokens)
