"""One bundle for several shapes, against onnxruntime: at the buckets, between and outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
import tvm
from numpy.typing import NDArray
from tvm import relax

import collage
from collage.backends.contract.errors import InputError, ShapeError
from collage.backends.devices import CPU
from collage.importers import load_model
from collage.pipeline.shapes.bucketed import MOST_SIZES, import_buckets
from collage.pipeline.shapes.buckets import buckets_of
from tests.collage_tests.pipeline.flat_costs import FlatCosts

_WIDTH = 6


def _model(text: str, **weights: tuple[int, ...]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    random = np.random.default_rng()
    for name, shape in weights.items():
        array = random.standard_normal(shape, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def _classifier() -> onnx.ModelProto:
    """Its batch is padded: ``Reshape`` takes it from the input, as exporters write it."""
    return _model(
        """
        net (float[n, 3, 8, 8] image, float[n, 4] more) => (float[n, 5] scores, float[4] same) {
            c = Conv<pads = [1, 1, 1, 1]>(image, kernel)
            r = Relu(c)
            p = GlobalAveragePool(r)
            s = Shape(p)
            zero = Constant<value = int64[1] {0}>()
            n0 = Gather(s, zero)
            rest = Constant<value = int64[1] {-1}>()
            to = Concat<axis = 0>(n0, rest)
            f = Reshape(p, to)
            both = Concat<axis = 1>(f, more)
            h = MatMul(both, head)
            scores = Softmax<axis = 1>(h)
            same = Exp(bias)
        }
        """,
        kernel=(_WIDTH, 3, 3, 3),
        head=(_WIDTH + 4, 5),
        bias=(4,),
    )


def _attention() -> onnx.ModelProto:
    """Its sequence is not padded: every row looks at all others."""
    return _model(
        """
        net (float[1, rows, 6] x) => (float[1, rows, 6] y) {
            t = Transpose<perm = [0, 2, 1]>(x)
            s = MatMul(x, t)
            p = Softmax<axis = 2>(s)
            y = MatMul(p, x)
        }
        """
    )


def _reference(model: onnx.ModelProto, feed: dict[str, NDArray[Any]]) -> list[object]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return list(session.run(None, feed))


def _random(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng().standard_normal(shape).astype("float32")


def test_a_batch_is_padded_between_buckets(tmp_path: Path) -> None:
    model = _classifier()
    shapes = {"image": ["1:6", 3, 8, 8]}
    result = collage.optimize(model, ["llvm"], shapes=shapes, cost_model=FlatCosts("llvm"))
    bundle = collage.load(result.export(tmp_path / "bundle"))
    (function,) = bundle.manifest.functions
    assert [variant.entry for variant in function.variants] == [
        *("main_1", "main_2", "main_4", "main_6")
    ]
    assert function.padding is not None and function.padding.sizes == (3, 5)
    for n in range(1, 7):
        feed = {"image": _random(n, 3, 8, 8), "more": _random(n, 4)}
        for found, expected in zip(bundle(**feed), _reference(model, feed), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    feed = {"image": _random(3, 3, 8, 8), "more": _random(3, 4)}
    tensors = {name: tvm.runtime.tensor(array) for name, array in feed.items()}
    for found, expected in zip(bundle(**tensors), _reference(model, feed), strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3, atol=1e-4)
    wrong = r"'image' must be float32\[1\.\.6, 3, 8, 8\], not float32\[7, 3, 8, 8\]: axis 0 may be"
    with pytest.raises(InputError, match=wrong):
        bundle(image=_random(7, 3, 8, 8), more=_random(7, 4))
    with pytest.raises(InputError, match="do not go together"):
        bundle(image=_random(3, 3, 8, 8), more=_random(2, 4))
    with pytest.raises(InputError, match=r"not float32\[2, 3, 8, 9\]$"):
        bundle(image=_random(2, 3, 8, 9), more=_random(2, 4))
    assert any("between buckets are padded" in remark for remark in bundle.report.remarks)


@pytest.mark.parametrize("wrong", [[_random(2, 4)], [], {"x": [[1.0], [1.0, 2.0]]}])
def test_samples_that_are_none_are_refused_for_buckets(wrong: Any) -> None:
    model = _model("net (float[n, 4] x) => (float[n, 4] y) { y = Exp(x) }")
    with pytest.raises(InputError, match=r"a sample is a mapping|not a single sample|is no array"):
        collage.optimize(
            *(model, ["llvm"]), shapes={"x": ["1|2", 4]}, inputs=wrong, cost_model=FlatCosts("llvm")
        )


def test_a_batch_of_tokens_is_padded(tmp_path: Path) -> None:
    model = _model(
        """
        net (int64[n, 5] ids, float[20, 8] table) => (float[n, 5, 8] y) {
            e = Gather<axis = 0>(table, ids)
            t = Transpose<perm = [0, 2, 1]>(e)
            s = MatMul(e, t)
            p = Softmax<axis = 2>(s)
            y = MatMul(p, e)
        }
        """
    )
    del model.graph.input[1]
    model.graph.initializer.append(onnx.numpy_helper.from_array(_random(20, 8), "table"))
    result = collage.optimize(
        model, ["llvm"], shapes={"ids": ["1|4", 5]}, cost_model=FlatCosts("llvm")
    )
    bundle = collage.load(result.export(tmp_path / "bundle"))
    for n in range(1, 5):
        ids = np.random.default_rng().integers(-20, 20, (n, 5))
        (expected,) = _reference(model, {"ids": ids})
        np.testing.assert_allclose(bundle(ids=ids), expected, rtol=1e-3, atol=1e-3)


def test_a_sequence_is_taken_at_its_buckets_alone(tmp_path: Path) -> None:
    model = _attention()
    shapes = {"x": [1, (2, 5), 6]}
    result = collage.optimize(model, ["llvm"], shapes=shapes, cost_model=FlatCosts("llvm"))
    bundle = collage.load(result.export(tmp_path / "bundle"))
    assert bundle.manifest.functions[0].padding is None
    for rows in (2, 5):
        feed = {"x": _random(1, rows, 6)}
        (expected,) = _reference(model, feed)
        np.testing.assert_allclose(bundle(**feed), expected, rtol=1e-3, atol=1e-4)
    with pytest.raises(InputError, match=r"must be float32\[1, 2\|5, 6\], not .* axis 1 may be 2"):
        bundle(_random(1, 3, 6))
    assert any("only the shapes of buckets" in remark for remark in bundle.report.remarks)


def test_a_rank_that_changes_with_a_shape_is_searched_at_the_buckets_alone(tmp_path: Path) -> None:
    model = _model(
        """
        net (float[n, 4] x) => (float[n, 4] y) {
            s = Shape(x)
            zero = Constant<value = int64 {0}>()
            n0 = Gather(s, zero)
            four = Constant<value = int64 {4}>()
            large = Greater(n0, four)
            e = Exp(x)
            a = If(large) <
                then_branch = one () => (float[n, 2, 2] t) {
                    to = Constant<value = int64[3] {-1, 2, 2}>()
                    t = Reshape(e, to)
                },
                else_branch = two () => (float[m] f) {
                    flat = Constant<value = int64[1] {-1}>()
                    f = Reshape(e, flat)
                }
            >
            r = Relu(a)
            back = Constant<value = int64[2] {-1, 4}>()
            b = Reshape(r, back)
            y = Exp(b)
        }
        """
    )
    result = collage.optimize(
        model, ["llvm"], shapes={"x": ["2|6", 4]}, cost_model=FlatCosts("llvm")
    )
    bundle = collage.load(result.export(tmp_path / "bundle"))
    assert bundle.manifest.functions[0].padding is None
    for n in (2, 6):
        feed = {"x": np.random.default_rng().uniform(-1, 1, (n, 4)).astype("float32")}
        (expected,) = _reference(model, feed)
        np.testing.assert_allclose(bundle(**feed), expected, rtol=1e-3)


def _symbolic() -> tvm.IRModule:
    """``x`` and ``y`` share a symbol; the result has one more row."""
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 8), "float32"))
    y = relax.Var("y", relax.TensorType((n + 1, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            joined = builder.emit(relax.op.concat([builder.emit(relax.op.exp(x)), y], axis=0))
            result = builder.emit_output(relax.op.nn.relu(joined))
        builder.emit_func_output(result)
    return builder.get()


def test_symbolic_dimensions_are_bound(tmp_path: Path) -> None:
    shapes = {"x": ["2|3", 8]}
    result = collage.optimize(_symbolic(), ["llvm"], shapes=shapes, cost_model=FlatCosts("llvm"))
    bundle = collage.load(result.export(tmp_path / "bundle"))
    for rows in (2, 3):
        x, y = _random(rows, 8), _random(rows + 1, 8)
        expected = np.maximum(np.concatenate([np.exp(x), y]), 0)
        np.testing.assert_allclose(bundle(x, y), expected, rtol=1e-4)
    with pytest.raises(InputError, match=r"'y' must be float32\[3\|4, 8\]"):
        bundle(_random(2, 8), _random(5, 8))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({}, "open shape"),
        ({"x": (2, 8, 1)}, "has 2 dimensions"),
        ({"x": (-1, 8)}, "is no shape"),
        ({"z": (2, 8)}, "no input 'z'"),
        ({"x": (2, 9)}, "fixed shape"),
    ],
)
def test_wrong_shapes_for_symbolic_dimensions(shapes: dict[str, object], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        load_model(_symbolic(), shapes=shapes)


def _two_functions() -> tvm.IRModule:
    """``x`` has an open batch in either, but another width; ``mixed`` sums over the batch."""
    builder = relax.BlockBuilder()
    for name, width in (("apart", 8), ("mixed", 5)):
        n = tvm.tirx.Var("n", "int64")
        x = relax.Var("x", relax.TensorType((n, width), "float32"))
        with builder.function(name, [x]):
            with builder.dataflow():
                y = builder.emit(relax.op.exp(x))
                y = builder.emit(relax.op.sum(y, axis=[0])) if name == "mixed" else y
                result = builder.emit_output(relax.op.nn.relu(y))
            builder.emit_func_output(result)
    return builder.get()


def test_shapes_are_given_to_one_function_alone() -> None:
    both = load_model(_two_functions(), shapes={"x": (2, 8)})
    assert both.inputs[0].shape == (2, 8) and both.others[0].inputs[0].shape == (2, 5)
    loaded = load_model(_two_functions(), shapes={"apart.x": (2, 8), "mixed.x": (3, 5)})
    assert loaded.inputs[0].shape == (2, 8) and loaded.others[0].inputs[0].shape == (3, 5)
    with pytest.raises(ShapeError, match=r"no input 'third.x'"):
        load_model(_two_functions(), shapes={"third.x": (2, 8)})


def test_each_function_is_padded_or_not_by_itself() -> None:
    shapes = {"apart.x": ["2:8", 8], "mixed.x": ["2:8", 5]}
    apart, mixed = import_buckets(_two_functions(), CPU, buckets_of(shapes))
    assert apart.padding is not None and apart.padding.sizes == (3, 5, 6, 7)
    assert mixed.padding is None and "sum mixes slices" in mixed.remark


def test_only_so_many_shapes_are_proven() -> None:
    model = _model("net (float[n, m] x) => (float[n, m] y) { y = Exp(x) }")
    for between in (MOST_SIZES // 3, MOST_SIZES // 3 + 1):
        shapes = {"x": [(1, between + 2), (2, 3, 4)]}
        (main,) = import_buckets(model, CPU, buckets_of(shapes))
        if 3 * between <= MOST_SIZES:
            assert main.padding is not None and len(main.padding.sizes) == between
        else:
            assert main.padding is None and f"{3 * between} shapes" in main.remark


@pytest.mark.parametrize(
    ("extents", "expected"),
    [
        ("1:8", (1, 2, 4, 8)),
        ("5:9", (5, 8, 9)),
        ("3:3", ()),
        ("4|1|4", (1, 4)),
        ([7, 2], (2, 7)),
        ((1, 2, 3), (1, 2, 3)),
        ("1:4@rows", (1, 2, 4)),
        (5, ()),
    ],
)
def test_extents_are_read(extents: object, expected: tuple[int, ...]) -> None:
    found = buckets_of({"x": [extents, 3]})
    assert found.varying == ((expected,) if expected else ())


@pytest.mark.parametrize("extents", ["", "a", "1:", ":8", "8:1", "0:4", "1|", "1:2:3", [], [0, 1]])
def test_what_is_no_extent_is_refused(extents: object) -> None:
    with pytest.raises(ShapeError, match="input 'x'"):
        buckets_of({"x": [extents, 3]})


def test_dimensions_written_alike_vary_together() -> None:
    together = buckets_of({"x": ["1:4", 8], "mask": ["1:4"]})
    assert [bucket.extents for bucket in together.buckets] == [(1,), (2,), (4,)]
    apart = buckets_of({"x": ["1:4", "1:4@columns"]})
    assert len(apart.buckets) == 9


def test_too_many_buckets_are_refused() -> None:
    with pytest.raises(ShapeError, match="100 buckets"):
        buckets_of({"x": [list(range(1, 101))]})
