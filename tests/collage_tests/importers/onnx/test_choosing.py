"""Operators that choose rows, and what follows them, beside onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

from collage.backends.contract.errors import ModelError
from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.normalize import normalize
from collage.pipeline.shapes.rows import rows_of
from tests.collage_tests.importers.onnx.onnx_models import (
    Array,
    by_onnxruntime,
    cut_rows,
    model_of,
    require_same,
)

_HEAD = '<ir_version: 9, opset_import: ["" : 17]>\n'


def compare(model: onnx.ModelProto, given: Mapping[str, Array]) -> list[Array]:
    """What the model answers, cut to the rows that there are: what onnxruntime answers."""
    loaded = load_model(model)
    whole = evaluate(normalize(loaded.mod), [*given.values()])
    answer = cut_rows(rows_of(loaded), whole)
    require_same(answer, by_onnxruntime(model, given))
    return answer


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(_HEAD + text)


def fresh(*shape: int) -> Array:
    return np.random.default_rng().standard_normal(shape).astype("float32")


def boxes_of(batch: int, count: int, *, center: bool) -> Array:
    """Boxes that often overlap: by center and sides, or by any two opposite corners."""
    rng = np.random.default_rng()
    place = rng.uniform(0, 10, (batch, count, 2))
    if center:
        boxes = np.concatenate([place, rng.uniform(0.1, 4, (batch, count, 2))], 2)
    else:
        boxes = np.concatenate([place, place + rng.normal(0, 3, (batch, count, 2))], 2)
    # Of whole eighths, areas and their sums are exact, in whatever order they are computed.
    return (np.round(boxes * 8) / 8).astype("float32")


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize(
    ("limit", "overlap", "least"),
    [(4, 0.5, None), (40, 0.0, -1.0), (6, 0.9, 0.3), (3, 0.3, 50.0)],
)
def test_suppression(center: int, limit: int, overlap: float, least: float | None) -> None:
    """Also of scores that are alike, of classes without a box, and of no box at all."""
    boxes = boxes_of(2, 30, center=bool(center))
    scores = np.round(fresh(2, 3, 30), 1)
    constants = {"limit": np.array([limit]), "overlap": np.array([overlap], np.float32)}
    if least is not None:
        constants["least"] = np.array([least], np.float32)
    node = helper.make_node(
        "NonMaxSuppression", ["boxes", "scores", *constants], ["rows"], center_point_box=center
    )
    given = {"boxes": boxes, "scores": scores}
    model = model_of([node], given, ["rows"], constants)
    (found,) = compare(model, given)
    assert (len(found) == 0) == (least == 50.0)


def test_a_detectors_tail() -> None:
    """Boxes, scores and classes by the rows that are chosen."""
    text = """
        net (float[1,40,4] b, float[1,5,40] s, int64[1] k, float[1] o, float[1] c)
            => (int64[n,3] rows, float[n,4] boxes, float[n] best, float[n,6] all)
        <int64[1] k = {4}, float[1] o = {0.4}, float[1] c = {0.1}>
        {
            rows = NonMaxSuppression(b, s, k, o, c)
            two = Constant <value = int64 {2}> ()
            one = Constant <value = int64 {1}> ()
            axis = Constant <value = int64[1] {1}> ()
            zero = Constant <value = int64[1] {0}> ()
            half = Constant <value = float {0.5}> ()
            place = Gather <axis = 1> (rows, two)
            class = Gather <axis = 1> (rows, one)
            flat = Squeeze(b, zero)
            boxes0 = Gather <axis = 0> (flat, place)
            boxes = Mul(boxes0, half)
            order = Constant <value = int64[3] {0, 1, 2}> ()
            best = GatherND(s, rows)
            kind = Cast <to = 1> (class)
            kinds = Unsqueeze(kind, axis)
            bests = Unsqueeze(best, axis)
            all = Concat <axis = 1> (boxes, kinds, bests)
        }
        """
    given = {"b": boxes_of(1, 40, center=False), "s": fresh(1, 5, 40)}
    compare(parsed(text), given)


@pytest.mark.parametrize("kind", ["float32", "bool", "int64", "uint8"])
@pytest.mark.parametrize("shape", [(7,), (4, 5), (2, 3, 4)])
def test_places_that_are_not_zero(shape: tuple[int, ...], kind: str) -> None:
    x = np.random.default_rng().choice([0, 0, 1, 3], shape).astype(kind)
    model = model_of([helper.make_node("NonZero", ["x"], ["y"])], {"x": x}, ["y"])
    compare(model, {"x": x})


@pytest.mark.parametrize("fill", [0, 1])
def test_all_or_none_of_the_places(fill: int) -> None:
    x = np.full((3, 4), fill, "float32")
    model = model_of([helper.make_node("NonZero", ["x"], ["y"])], {"x": x}, ["y"])
    (found,) = compare(model, {"x": x})
    assert found.shape == (2, 12 * fill)


def test_two_choices_of_their_own() -> None:
    text = """
        net (float[6,8] x, float[9] w)
            => (int64[2,n] p, float[n] values, float[6,8] y, float[m] others) {
            y = Tanh(x)
            zero = Constant <value = float {0}> ()
            positive = Greater(y, zero)
            p = NonZero(positive)
            turned = Transpose <perm = [1, 0]> (p)
            values = GatherND(y, turned)
            negative = Less(w, zero)
            q = NonZero(negative)
            axis = Constant <value = int64[1] {0}> ()
            places = Squeeze(q, axis)
            others0 = Gather <axis = 0> (w, places)
            others = Exp(others0)
        }
        """
    compare(parsed(text), {"x": fresh(6, 8), "w": fresh(9)})


def test_of_what_is_known_the_places_are_known() -> None:
    text = """
        net (float[3,4] x) => (float[2] y) {
            s = Shape(x) z = NonZero(s) f = Constant <value = int64[1] {-1}> ()
            c = Cast <to = 1> (z) y = Reshape(c, f)
        }
        """
    model = parsed(text)
    assert not load_model(model).chosen
    compare(model, {"x": fresh(3, 4)})


@pytest.mark.parametrize(
    "mixing",
    [
        "y = ReduceMax <keepdims = 0, axes = [1]> (p)",
        "c = Cast <to = 1> (p) y = Softmax <axis = 1> (c)",
        "k = Constant <value = int64[1] {2}> () y, i = TopK <axis = 1> (p, k)",
        "s = Shape(p) y = Cast <to = 1> (s)",
    ],
)
def test_what_mixes_rows_is_refused(mixing: str) -> None:
    model = parsed(f"net (float[6] x) => (y) {{ p = NonZero(x) {mixing} }}")
    loaded = load_model(model)
    with pytest.raises(ModelError, match=r"NonZero \(p\) chooses as many rows as the data say"):
        rows_of(loaded)


def test_limits_have_to_be_known() -> None:
    text = """
        net (float[1,9,4] b, float[1,2,9] s, int64[1] k) => (int64[n,3] rows) {
            rows = NonMaxSuppression(b, s, k)
        }
        """
    with pytest.raises(ModelError, match=r"rows \(NonMaxSuppression: its number of boxes"):
        load_model(parsed(text))


_COUNT = "n = Shape(p) one = Constant <value = int64 {1}> () m = Gather <axis = 0> (n, one) "


_SCALE = "f = Cast <to = 1> (m) h = Constant <value = float {0.4}> () s = Mul(f, h) "
_BESIDE = (
    "three = Constant <value = int64[1] {3}> () row = Constant <value = int64[1] {1}> () "
    "v = Gather <axis = 0> (n, row)"
)


@pytest.mark.parametrize(
    ("deciding", "what"),
    [
        (
            "none = Constant <value = int64 {0}> () b = Equal(m, none) "
            "y = If(b) <then_branch = g1() => (float[6] a) { a = Neg(x) }, "
            "else_branch = g2() => (float[6] e) { e = Abs(x) }>",
            "Equal",
        ),
        ("none = Constant <value = int64[2] {1, 0}> () e = Equal(n, none) y = Not(e)", "Equal"),
        (
            "two = Constant <value = int64 {2}> () q = Clip(m, one, two) "
            "r = Cast <to = 1> (q) y = Mul(x, r)",
            "Clip",
        ),
        (
            f"{_BESIDE} k = Concat <axis = 0> (v, three) "
            "q = ReduceMin <keepdims = 0> (k) r = Cast <to = 1> (q) y = Mul(x, r)",
            "ReduceMin",
        ),
        (
            f"{_BESIDE} k = Concat <axis = 0> (three, v) "
            "q = ArgMax <keepdims = 0> (k) r = Cast <to = 1> (q) y = Mul(x, r)",
            "ArgMax",
        ),
        (f"{_SCALE} q = Cast <to = 7> (s) r = Cast <to = 1> (q) y = Mul(x, r)", "Cast"),
        (f"{_SCALE} q = HardSigmoid(f) y = Mul(x, q)", "HardSigmoid"),
        (
            "four = Constant <value = int64 {4}> () q = Div(m, four) "
            "r = Cast <to = 1> (q) y = Mul(x, r)",
            "Div",
        ),
        (
            "two = Constant <value = bool[2] {1, 1}> () rows = Transpose(p) "
            "y = Compress <axis = 0> (rows, two)",
            "Compress",
        ),
    ],
)
def test_what_decides_by_the_number_of_rows_is_refused(deciding: str, what: str) -> None:
    model = parsed(f"net (float[6] x) => (y) {{ p = NonZero(x) {_COUNT} {deciding} }}")
    with pytest.raises(ModelError, match=rf"\({what}\) decides by how many they are"):
        load_model(model)


def test_a_shape_beside_one_that_no_shape_is() -> None:
    """As exporters write it where a tensor is expanded."""
    text = """
        net (float[6] x) => (int64[1,n] y) {
            p = NonZero(x)
            n = Shape(p)
            same = Constant <value = int64[2] {-1, -1}> ()
            ones = Constant <value = int64[2] {1, 1}> ()
            kept = Equal(n, same)
            wanted = Where(kept, ones, n)
            seven = Constant <value = int64[1,1] {7}> ()
            y = Expand(seven, wanted)
        }
        """
    x = np.random.default_rng().choice([0, 1], 6).astype("float32")
    compare(parsed(text), {"x": x})


@pytest.mark.parametrize("kind", ["float32", "int64"])
@pytest.mark.parametrize("in_order", [0, 1])
@pytest.mark.parametrize("shape", [(1,), (12,), (3, 4)])
def test_distinct_elements(shape: tuple[int, ...], in_order: int, kind: str) -> None:
    x = np.random.default_rng().integers(0, 6, shape).astype(kind)
    names = ["y", "places", "which", "counts"]
    node = helper.make_node("Unique", ["x"], names, sorted=in_order)
    compare(model_of([node], {"x": x}, names), {"x": x})


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("known", [False, True])
def test_compressed_by_a_condition(axis: int | None, known: bool) -> None:
    """The condition may be shorter than what it chooses from."""
    x = fresh(5, 6)
    condition = np.random.default_rng().integers(0, 2, 4).astype(bool)
    condition[0] = True
    inputs, constants = {"x": x}, {"condition": condition}
    if not known:
        inputs, constants = inputs | constants, {}
    attributes = {} if axis is None else {"axis": axis}
    node = helper.make_node("Compress", ["x", "condition"], ["y"], **attributes)
    compare(model_of([node], inputs, ["y"], constants), inputs)
