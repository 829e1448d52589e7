"""If, Loop and Scan as straight lines, beside onnxruntime; what cannot be one is refused."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.collage_tests.importers.onnx.onnx_models import (
    Array,
    by_importer,
    by_onnxruntime,
    fresh,
    require_same,
)

_HEAD = '<ir_version: 9, opset_import: ["" : 17]>\n'


def compare(text: str, **given: Array) -> list[Array]:
    """What the model answers, which is what onnxruntime answers."""
    model = onnx.parser.parse_model(_HEAD + text)
    found = by_importer(model, given)
    require_same(found, by_onnxruntime(model, given))
    return found


@pytest.mark.parametrize("taken", [True, False])
def test_a_condition_that_is_not_known_selects(taken: bool) -> None:
    compare(
        """
        net (bool c, float[3,4] x) => (float[3,4] y, float[3,4] z) {
            y, z = If (c) <
                then_branch = yes () => (float[3,4] a, float[3,4] b) { a = Exp(x) b = Neg(x) },
                else_branch = no () => (float[3,4] a, float[3,4] b) {
                    two = Constant <value = float[1] {2}> ()
                    a = Mul(x, two)
                    b = If (c) <
                        then_branch = inner () => (float[3,4] d) { d = Abs(a) },
                        else_branch = other () => (float[3,4] d) { d = Add(a, x) }>
                }>
        }
        """,
        c=np.asarray(taken),
        x=fresh(3, 4),
    )


def test_a_choice_by_the_shape_of_what_a_loop_gives() -> None:
    """Exporters squeeze so: the shape is known only when the loop is written out."""
    compare(
        """
        net (float[3,1] x) => (float[N] y) {
            n = Constant <value = int64 {2}> ()
            z = Loop (n, , x) <
                body = step (int64 i, bool c, float[A,B] h) => (bool c2, float[A,B] h2)
                { c2 = Identity(c) h2 = Tanh(h) }>
            shape = Shape(z)
            one = Constant <value = int64 {1}> ()
            columns = Gather(shape, one)
            single = Equal(columns, one)
            y = If (single) <
                then_branch = flat () => (float[N] b) {
                    axes = Constant <value = int64[1] {1}> ()
                    b = Squeeze(z, axes)
                },
                else_branch = same () => (float[P,Q] b) { b = Identity(z) }>
        }
        """,
        x=fresh(3, 1),
    )


def test_a_known_condition_chooses_a_branch() -> None:
    text = """
        net (float[3,4] x) => (float[M] y) {
            shape = Shape(x)
            place = Constant <value = int64[1] {0}> ()
            rows = Gather(shape, place)
            three = Constant <value = int64[1] {3}> ()
            c = Equal(rows, three)
            scalar = Squeeze(c)
            y = If (scalar) <
                then_branch = yes () => (float[N] a) { f = Constant <value = int64[1] {-1}> ()
                                                       a = Reshape(x, f) },
                else_branch = no () => (float[N] a) { e = NonZero(x) g = Cast <to = 1> (e)
                                                      h = Constant <value = int64[1] {-1}> ()
                                                      a = Reshape(g, h) }>
        }
        """
    (found,) = compare(text, x=fresh(3, 4))
    assert found.shape == (12,)


def test_a_loop_with_states_rows_and_outer_values() -> None:
    compare(
        """
        net (float[2,3] x) => (float[2,3] s, float[4,2,3] rows) {
            n = Constant <value = int64 {4}> ()
            go = Constant <value = bool {1}> ()
            s, rows = Loop (n, go, x) <
                body = step (int64 i, bool c, float[2,3] h)
                    => (bool c2, float[2,3] h2, float[2,3] r)
                { c2 = Identity(c) f = Cast <to = 1> (i) g = Add(h, f)
                  h2 = Mul(g, x) r = Tanh(h2) }>
        }
        """,
        x=fresh(2, 3),
    )


@pytest.mark.parametrize("limit", [-9.0, 1.5, 1e9])
def test_a_loop_that_ends_by_what_it_computes(limit: float) -> None:
    compare(
        """
        net (float[3] x, float limit) => (float[3] s) {
            n = Constant <value = int64 {6}> ()
            go = Constant <value = bool {1}> ()
            s = Loop (n, go, x) <
                body = step (int64 i, bool c, float[3] h)
                    => (bool c2, float[3] h2)
                { one = Constant <value = float {1}> ()
                  h2 = Add(h, one) m = ReduceMax <keepdims = 0> (h2) c2 = Less(m, limit) }>
        }
        """,
        x=np.random.default_rng().uniform(-1, 0.9, 3).astype("float32"),
        limit=np.array(limit, "float32"),
    )


@pytest.mark.parametrize("by_itself", [False, True])
def test_a_loop_over_the_rows_that_another_loop_gives(by_itself: bool) -> None:
    """Layers of recurrent networks: how often the second runs is known when the first is written
    out, whether it is told so or counts by itself."""
    told = "Loop (rows, , x)" if not by_itself else "Loop (, go, x)"
    again = "c2 = Identity(c)" if not by_itself else "next = Add(i, one) c2 = Less(next, rows)"
    compare(
        f"""
        net (float[3] x) => (float[3] y) {{
            n = Constant <value = int64 {{4}}> ()
            one = Constant <value = int64 {{1}}> ()
            zero = Constant <value = int64 {{0}}> ()
            last, z = Loop (n, , x) <
                body = first (int64 i, bool c, float[3] h) => (bool c2, float[3] h2, float[3] row)
                {{ c2 = Identity(c) h2 = Tanh(h) row = Identity(h2) }}>
            shape = Shape(z)
            rows = Gather(shape, zero)
            go = Less(zero, rows)
            y = {told} <
                body = second (int64 i, bool c, float[3] h) => (bool c2, float[3] h2)
                {{ {again} picked = Gather(z, i) h2 = Add(h, picked) }}>
        }}
        """,
        x=fresh(3),
    )


def test_a_loop_that_counts_by_itself() -> None:
    (found,) = compare(
        """
        net (float[3] x) => (float[3] s) {
            go = Constant <value = bool {1}> ()
            zero = Constant <value = int64 {0}> ()
            k, s = Loop (, go, zero, x) <
                body = step (int64 i, bool c, int64 j, float[3] h)
                    => (bool c2, int64 k2, float[3] h2)
                { one = Constant <value = int64 {1}> () five = Constant <value = int64 {5}> ()
                  k2 = Add(j, one) c2 = Less(k2, five) h2 = Add(h, x) }>
        }
        """,
        x=(x := fresh(3)),
    )
    assert np.allclose(found, 6 * x, atol=1e-5)


def test_a_scan_along_other_axes_and_backwards() -> None:
    compare(
        """
        net (float[2] h, float[2,5] x, float[5,2] w)
            => (float[2] s, float[2,5] rows, float[5,2] back) {
            s, rows, back = Scan (h, x, w) <
                num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [0, 1],
                scan_output_axes = [1, 0], scan_output_directions = [0, 1],
                body = step (float[2] a, float[2] p, float[2] q)
                    => (float[2] b, float[2] r, float[2] t)
                { m = Mul(p, q) b = Add(a, m) r = Tanh(b) t = Sub(b, p) }>
        }
        """,
        h=fresh(2),
        x=fresh(2, 5),
        w=fresh(5, 2),
    )


def test_a_loop_within_a_loop() -> None:
    compare(
        """
        net (float[2] x) => (float[2] s) {
            n = Constant <value = int64 {3}> ()
            s = Loop (n, , x) <
                body = outer (int64 i, bool c, float[2] h) => (bool c2, float[2] h2)
                { c2 = Identity(c)
                  more = Constant <value = int64 {1}> ()
                  times = Add(i, more)
                  h2 = Loop (times, , h) <
                    body = inner (int64 j, bool d, float[2] g) => (bool d2, float[2] g2)
                    { d2 = Identity(d) e = Cast <to = 1> (i) k = Mul(g, x) g2 = Add(k, e) }>
                }>
        }
        """,
        x=fresh(2),
    )


@pytest.mark.parametrize("taken", [True, False])
def test_a_loop_within_a_branch_that_is_not_known(taken: bool) -> None:
    compare(
        """
        net (bool c, float[2,3] x) => (float[2,3] y) {
            y = If (c) <
                then_branch = yes () => (float[2,3] a) {
                    n = Constant <value = int64 {3}> ()
                    a = Loop (n, , x) <
                        body = step (int64 i, bool d, float[2,3] h) => (bool d2, float[2,3] h2)
                        { d2 = Identity(d) h2 = Mul(h, x) }> },
                else_branch = no () => (float[2,3] b) { b = Neg(x) }>
        }
        """,
        c=np.asarray(taken),
        x=fresh(2, 3),
    )


@pytest.mark.parametrize("limit", [-9.0, 30.0, 1e9])
def test_a_loop_within_a_loop_that_ends_by_what_it_computes(limit: float) -> None:
    compare(
        """
        net (float[3] x, float limit) => (float[3] s) {
            n = Constant <value = int64 {4}> ()
            s = Loop (n, , x) <
                body = outer (int64 i, bool c, float[3] h) => (bool c2, float[3] h2)
                { two = Constant <value = int64 {2}> ()
                  h2 = Loop (two, , h) <
                    body = inner (int64 j, bool d, float[3] g) => (bool d2, float[3] g2)
                    { d2 = Identity(d) five = Constant <value = float {5}> () g2 = Add(g, five) }>
                  m = ReduceMax <keepdims = 0> (h2) c2 = Less(m, limit) }>
        }
        """,
        x=np.random.default_rng().uniform(-1, 0.9, 3).astype("float32"),
        limit=np.array(limit, "float32"),
    )


def test_numbers_of_rounds_and_conditions_in_rows_of_one() -> None:
    """As PyTorch's exporter declares them: what is taken by such a number has an axis more."""
    compare(
        """
        net (float[3,5] x) => (float[3,N] y, float[3,M] z) {
            n = Constant <value = int64[1] {2}> ()
            go = Constant <value = bool[1] {1}> ()
            ends = Constant <value = int64[3] {0, 1, 4}> ()
            one = Constant <value = int64 {1}> ()
            axis = Constant <value = int64[1] {1}> ()
            nothing = SequenceEmpty <dtype = 1> ()
            pieces = Loop (n, go, nothing) <
                body = step (int64[1] i, bool[1] c, seq(float[A,B]) s) =>
                            (bool[1] c2, seq(float[A,B]) s2) {
                    begin = Gather(ends, i)
                    next = Add(i, one)
                    end = Gather(ends, next)
                    piece = Slice(x, begin, end, axis)
                    s2 = SequenceInsert(s, piece)
                    c2 = Identity(c)
                }>
            first = Constant <value = int64 {0}> ()
            y = SequenceAt(pieces, first)
            z = SequenceAt(pieces, one)
        }
        """,
        x=fresh(3, 5),
    )
