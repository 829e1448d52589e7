"""Constants in the bodies of loops: one copy for all trips."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest
import tvm
from tvm import relax

from collage.importers import load_model
from tests.collage_tests.importers.onnx.onnx_models import (
    by_importer,
    by_onnxruntime,
    fresh,
    require_same,
)

_HEAD = '<ir_version: 9, opset_import: ["" : 17]>\n'


_TRIPS = 5


_WEIGHTS_IN_BODIES = {
    "initializer": "g = MatMul(h, w)",
    "constant node": "v = Constant <value = float[1] {0}> () g = MatMul(h, v)",
    "what follows from one": "t = Transpose(w) g = MatMul(h, t)",
    "two levels down": """
        two = Constant <value = int64 {2}> ()
        g = Loop (two, , h) <body = inner (int64 j, bool e, float[2,N] p) => (bool e2, float[2,N] q)
            { e2 = Identity(e) v = Constant <value = float[1] {0}> () q = MatMul(p, v) }>
        """,
}


@pytest.mark.parametrize("size", [80, 320])  # Below and above what takes part in the folding.
@pytest.mark.parametrize("place", _WEIGHTS_IN_BODIES)
def test_weights_of_a_body_are_there_once(place: str, size: int) -> None:
    text = f"""
        net (float[2,N] x) => (float[2,N] s) {{
            n = Constant <value = int64 {{{_TRIPS}}}> ()
            s = Loop (n, , x) <
                body = step (int64 i, bool c, float[2,N] h) => (bool c2, float[2,N] h2)
                {{ c2 = Identity(c) {_WEIGHTS_IN_BODIES[place]} h2 = Tanh(g) }}>
        }}
        """.replace("N", str(size))
    model = onnx.parser.parse_model(_HEAD + text)
    weights = onnx.numpy_helper.from_array(fresh(size, size) / size, "w")
    (body,) = [a.g for n in model.graph.node for a in n.attribute if a.name == "body"]
    body.initializer.append(weights)
    for inner in (body, *(a.g for n in body.node for a in n.attribute if a.name == "body")):
        for node in inner.node:
            if node.op_type == "Constant" and node.output[0] == "v":
                node.attribute[0].t.CopyFrom(weights)
    given = {"x": fresh(2, size)}
    require_same(by_importer(model, given), by_onnxruntime(model, given))
    large: list[tvm.runtime.Tensor] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, tvm.ir.GenericConst) and expr.value.numpy().size == size * size:
            large.append(expr.value)

    relax.analysis.post_order_visit(load_model(model).mod["main"], visit)
    assert len({tensor.data_ptr() for tensor in large}) == 1
