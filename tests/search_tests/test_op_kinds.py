"""Operator kinds against those that TVM derives from legalized operators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.tvm.common.gathers import mark_gathers
from collage.search.dataflow import DataflowGraph, OpKind

SHAPE = (1, 8, 16, 16)


def _const(*shape: int) -> relax.Expr:
    return relax.const(np.ones(shape, "float32"))


CASES: dict[str, Callable[[relax.Var], relax.Expr]] = {
    "nn.conv2d": lambda x: op.nn.conv2d(x, _const(8, 8, 3, 3), padding=1),
    "nn.conv2d_transpose": lambda x: op.nn.conv2d_transpose(x, _const(8, 8, 3, 3)),
    "matmul": lambda x: op.matmul(x, _const(16, 16)),
    "nn.max_pool2d": lambda x: op.nn.max_pool2d(x, (3, 3), padding=1),
    "nn.avg_pool2d": lambda x: op.nn.avg_pool2d(x, (2, 2)),
    "nn.adaptive_avg_pool2d": lambda x: op.nn.adaptive_avg_pool2d(x, 1),
    "nn.softmax": op.nn.softmax,
    "nn.log_softmax": op.nn.log_softmax,
    "nn.layer_norm": lambda x: op.nn.layer_norm(x, _const(16), _const(16), axes=[-1]),
    "nn.group_norm": lambda x: op.nn.group_norm(x, _const(8), _const(8), 2, 1, [2, 3]),
    "mean": lambda x: op.mean(x, [2, 3]),
    "variance": lambda x: op.variance(x, [2, 3]),
    "sum": lambda x: op.sum(x, [2, 3]),
    "max": lambda x: op.max(x, [1]),
    "argmax": lambda x: op.argmax(x, 1),
    "nn.relu": op.nn.relu,
    "clip": lambda x: op.clip(x, 0, 6),
    "sigmoid": op.sigmoid,
    "tanh": op.tanh,
    "nn.gelu": op.nn.gelu,
    "nn.gelu_tanh": op.nn.gelu_tanh,
    "nn.silu": op.nn.silu,
    "nn.leakyrelu": op.nn.leakyrelu,
    "nn.prelu": lambda x: op.nn.prelu(x, _const(8)),
    "erf": op.erf,
    "sqrt": op.sqrt,
    "astype": lambda x: op.astype(x, "float16"),
    "add": lambda x: op.add(x, _const(1, 8, 1, 1)),
    "multiply": lambda x: op.multiply(x, relax.const(2.0)),
    "power": lambda x: op.power(x, relax.const(2.0)),
    "maximum": lambda x: op.maximum(x, x),
    "where": lambda x: op.where(relax.const(np.ones(SHAPE, "bool")), x, x),
    "concat": lambda x: op.concat([x, x], 1),
    "split": lambda x: op.split(x, 2, 1),
    "reshape": lambda x: op.reshape(x, (8, -1)),
    "permute_dims": lambda x: op.permute_dims(x, [0, 2, 3, 1]),
    "nn.pad": lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1]),
    "squeeze": lambda x: op.squeeze(x, [0]),
    "expand_dims": lambda x: op.expand_dims(x, 0),
    "broadcast_to": lambda x: op.broadcast_to(x, (4, 8, 16, 16)),
    "tile": lambda x: op.tile(x, (1, 1, 1, 2)),
    "image.resize2d": lambda x: op.image.resize2d(x, (32, 32)),
    "take": lambda x: op.take(x, relax.const(np.array([1, 2])), 1),
    "gather_elements": lambda x: op.gather_elements(x, relax.const(np.zeros(SHAPE, "int64")), 1),
    "index_tensor": lambda x: op.index_tensor(x, [relax.const(np.zeros(3, "int64"))]),
}


def _function(body: Callable[[relax.Var], relax.Expr]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(body(x))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("name", CASES)
def test_kind_is_tvms(name: str) -> None:
    mod = _function(CASES[name])
    graph = DataflowGraph.from_function(mod["main"])
    assert [graph.op_name(i) for i in range(len(graph))] == [name]
    legal = mark_gathers(1 << 18)(
        relax.transform.AnnotateTIROpPattern()(relax.transform.LegalizeOps()(mod))
    )
    kinds = [
        OpKind(int(func.attrs["op_pattern"]))
        for func in legal.functions.values()
        if isinstance(func, tvm.tirx.PrimFunc)
    ]
    assert [graph.op_kind(0)] == kinds


def test_kinds_of_tensor_programs_come_from_the_module() -> None:
    mod = _function(op.nn.relu)
    legal = relax.transform.AnnotateTIROpPattern()(relax.transform.LegalizeOps()(mod))
    graph = DataflowGraph.from_function(legal["main"], legal)
    assert graph.op_name(0) == "call_tir:relu" and graph.op_kind(0) is OpKind.ELEMWISE
    assert DataflowGraph.from_function(legal["main"]).op_kind(0) is OpKind.OPAQUE


def test_binary_operators_without_an_operand_of_the_results_shape_broadcast() -> None:
    mod = _function(lambda x: op.add(_const(4, 1), _const(1, 5)))
    assert DataflowGraph.from_function(mod["main"]).op_kind(0) is OpKind.BROADCAST
