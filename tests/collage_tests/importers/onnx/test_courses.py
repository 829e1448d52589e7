"""If and Loop whose course data choose, cut into parts: beside onnxruntime, on fresh inputs."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from collage.backends.contract.errors import ModelError
from collage.course import Choose, Repeat
from collage.importers import load_model
from tests.collage_tests.importers.onnx.onnx_models import (
    Array,
    by_course,
    by_importer,
    by_onnxruntime,
    fresh,
    require_same,
)

_HEAD = '<ir_version: 9, opset_import: ["" : 17]>\n'

WHILE = """
    net (float[3] x, float limit) => (float[3] y, float z) {
        yes = Constant <value = bool {1}> ()
        s = Loop (, yes, x) <body = step (int64 i, bool c, float[3] h) => (bool c2, float[3] h2)
            { a = Abs(x) h2 = Add(h, a) m = ReduceMax <keepdims = 0> (h2) c2 = Less(m, limit) }>
        y = Neg(s)
        z = ReduceSum <keepdims = 0> (s)
    }
    """


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(_HEAD + text)


def compare(text: str, **given: Array) -> list[Array]:
    """What the model answers, which is what onnxruntime answers."""
    model = parsed(text)
    found = by_course(model, given)
    require_same(found, by_onnxruntime(model, given))
    return found


@pytest.mark.parametrize("limit", [-9, 3, 70])
def test_a_loop_until_data_say_so(limit: int) -> None:
    compare(WHILE, x=fresh(3), limit=np.array(limit, "float32"))


@pytest.mark.parametrize("trips", [-1, 0, 1, 9])
def test_a_loop_as_often_as_an_input_says(trips: int) -> None:
    compare(
        """
        net (int64 n, float[3,3] x, bool go) => (float[3,3] y, int64 last) {
            zero = Constant <value = int64 {0}> ()
            y, last = Loop (n, go, x, zero) <
                body = step (int64 i, bool c, float[3,3] h, int64 l)
                    => (bool c2, float[3,3] h2, int64 l2)
                { c2 = Identity(c) m = MatMul(h, x) h2 = Tanh(m) l2 = Identity(i) }>
        }
        """,
        n=np.array(trips, "int64"),
        x=fresh(3, 3),
        go=np.array(True),
    )


@pytest.mark.parametrize("limit", [-9, 3, 70])
def test_numbers_of_rounds_and_conditions_in_rows_of_one(limit: int) -> None:
    """What is taken by such a number has an axis more than what is taken by a number."""
    compare(
        """
        net (float[1,9] x, float[1] limit) => (float[1] y) {
            yes = Constant <value = bool[1] {1}> ()
            most = Constant <value = int64[1] {8}> ()
            zero = Constant <value = float[1] {0}> ()
            y = Loop (most, yes, zero) <
                body = step (int64[1] i, bool[1] c, float[1] h) => (bool[1] c2, float[1] h2) {
                    taken = Gather <axis = 1> (x, i)
                    axis = Constant <value = int64[1] {0}> ()
                    product = MatMul(taken, taken)
                    row = Squeeze(product, axis)
                    h2 = Add(h, row)
                    c2 = Less(h2, limit)
                }>
        }
        """,
        x=fresh(1, 9),
        limit=np.array([limit], "float32"),
    )


@pytest.mark.parametrize("go", [True, False])
@pytest.mark.parametrize("limit", [-9.0, 1.5, 9.0])
def test_rows_of_a_loop_that_ends_early(go: bool, limit: float) -> None:
    compare(
        """
        net (float[3] x, float limit, bool go) => (float[3] s, float[M,3] rows) {
            n = Constant <value = int64 {4}> ()
            s, rows = Loop (n, go, x) <
                body = step (int64 i, bool c, float[3] h) => (bool c2, float[3] h2, float[3] r)
                { a = Abs(x) h2 = Add(h, a) r = Exp(h) m = ReduceMax <keepdims = 0> (h2)
                  c2 = Less(m, limit) }>
        }
        """,
        x=fresh(3),
        limit=np.array(limit, "float32"),
        go=np.array(go),
    )


@pytest.mark.parametrize("taken", [True, False])
def test_products_that_are_not_chosen_are_not_computed(taken: bool) -> None:
    text = """
        net (bool c, float[3,4] x, float[4,5] w) => (float[3,5] y) {
            a = Exp(x)
            b = If (c) <
                then_branch = yes () => (float[3,5] p) { p = MatMul(a, w) },
                else_branch = no () => (float[3,5] p) { n = Neg(w) p = MatMul(x, n) }>
            y = Tanh(b)
        }
        """
    (choice,) = (
        step for step in load_model(parsed(text)).course.region.steps if isinstance(step, Choose)
    )
    assert {step.part.split("_")[0] for step in choice.then.steps} == {"then"}
    compare(text, c=np.array(taken), x=fresh(3, 4), w=fresh(4, 5))


@pytest.mark.parametrize("taken", [True, False])
def test_branches_of_other_shapes_with_what_comes_behind_them(taken: bool) -> None:
    found = compare(
        """
        net (bool c, float[3,4] x) => (float[M,N] y, float[M] sums, float all) {
            a = If (c) <
                then_branch = yes () => (float[3,4] p) { p = Exp(x) },
                else_branch = no () => (float[4,3] p) { p = Transpose(x) }>
            y = Softmax(a)
            one = Constant <value = int64[1] {1}> ()
            sums = ReduceSum <keepdims = 0> (a, one)
            all = ReduceMax <keepdims = 0> (sums)
        }
        """,
        c=np.array(taken),
        x=fresh(3, 4),
    )
    assert found[0].shape == ((3, 4) if taken else (4, 3))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_two_choices_of_shapes(first: bool, second: bool) -> None:
    compare(
        """
        net (bool c, bool d, float[6] x) => (float[M] y) {
            a = If (c) <
                then_branch = yes () => (float[6] p) { p = Exp(x) },
                else_branch = no () => (float[M] p) {
                    s = Constant <value = int64[1] {1}> () e = Constant <value = int64[1] {5}> ()
                    p = Slice(x, s, e) }>
            y = If (d) <
                then_branch = more () => (float[M] q) { q = Concat <axis = 0> (a, x) },
                else_branch = less () => (float[M] q) { q = Neg(a) }>
        }
        """,
        c=np.array(first),
        d=np.array(second),
        x=fresh(6),
    )


@pytest.mark.parametrize("n", [0, 1, 5])
def test_loops_and_choices_in_one_another(n: int) -> None:
    compare(
        """
        net (int64 n, float[3] x, float limit) => (float[3] y) {
            y = Loop (n, , x) <
                body = step (int64 i, bool c, float[3] h) => (bool c2, float[3] h3) {
                    yes = Constant <value = bool {1}> ()
                    c2 = Identity(c)
                    m = ReduceMax <keepdims = 0> (h)
                    big = Greater(m, limit)
                    h3 = If (big) <
                        then_branch = large () => (float[3] p) {
                            half = Constant <value = float {0.5}> () p = Mul(h, half) },
                        else_branch = small () => (float[3] p) {
                            p = Loop (, yes, h) <
                                body = inner (int64 j, bool d, float[3] k) => (bool d2, float[3] k2)
                                { a = Abs(x) k2 = Add(k, a) s = ReduceMax <keepdims = 0> (k2)
                                  d2 = Less(s, limit) }> }>
                }>
        }
        """,
        n=np.array(n, "int64"),
        x=fresh(3),
        limit=np.array(2, "float32"),
    )


def test_a_loop_whose_condition_is_known_is_written_out() -> None:
    """As TensorFlow's exporter writes layers of recurrent networks, products and all."""
    text = """
        net (float[3,3] x) => (float[3,3] y) {
            yes = Constant <value = bool {1}> ()
            y = Loop (, yes, x) <
                body = step (int64 i, bool c, float[3,3] h) => (bool c2, float[3,3] h2)
                { three = Constant <value = int64 {3}> () c2 = Less(i, three) h2 = MatMul(h, x) }>
        }
        """
    x = fresh(3, 3)
    model = parsed(text)
    assert load_model(model).course is None
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


def test_more_rounds_than_anybody_writes_out() -> None:
    text = """
        net (float[3] x) => (float[3] y) {
            n = Constant <value = int64 {30000}> ()
            y = Loop (n, , x) <body = step (int64 i, bool c, float[3] h) => (bool c2, float[3] h2)
                { c2 = Identity(c) h2 = Sin(h) }>
        }
        """
    (loop,) = load_model(parsed(text)).course.region.steps
    assert isinstance(loop, Repeat)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            """
            net (float[3] x, float limit) => (float[M,3] rows) {
                yes = Constant <value = bool {1}> ()
                s, rows = Loop (, yes, x) <
                    body = step (int64 i, bool c, float[3] h) => (bool c2, float[3] h2, float[3] r)
                    { h2 = Add(h, x) r = Exp(h) m = ReduceMax <keepdims = 0> (h2)
                      c2 = Less(m, limit) }>
            }
            """,
            r"\(Loop\) cannot be imported: how many rows it gives depends on data, without a limit",
        ),
        (
            """
            net (int64 n, float[3] x) => (float[M] y) {
                y = Loop (n, , x) <
                    body = step (int64 i, bool c, float[A] h) => (bool c2, float[B] h2)
                    { c2 = Identity(c) h2 = Concat <axis = 0> (h, x) }>
            }
            """,
            r"\(Loop\) .* is float32\[3\] before a round and float32\[6\] after",
        ),
        (
            """
            net (bool c, float[3,4] x) => (float[A,B] y) {
                y = If (c) <
                    then_branch = yes () => (float[3,4] p) { p = Exp(x) },
                    else_branch = no () => (float[B] p) {
                        f = Constant <value = int64[1] {-1}> () p = Reshape(x, f) }>
            }
            """,
            r"\(If\) cannot be imported: its branches give tensors of other ranks or types",
        ),
        (
            """
            net (float[3] x, float limit) => (float y) {
                n = Constant <value = int64 {4}> () yes = Constant <value = bool {1}> ()
                s, rows = Loop (n, yes, x) <
                    body = step (int64 i, bool c, float[3] h) => (bool c2, float[3] h2, float[3] r)
                    { h2 = Add(h, x) r = Exp(h) m = ReduceMax <keepdims = 0> (h2)
                      c2 = Less(m, limit) }>
                y = ReduceMax <keepdims = 0> (rows)
            }
            """,
            r"how many rows 'rows' has depends on data, and y reads them",
        ),
    ],
)
def test_what_has_no_end_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        load_model(parsed(text))
