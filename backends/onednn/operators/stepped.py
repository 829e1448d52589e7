"""Importer of products of 8-bit integers."""

from __future__ import annotations

import math

from tvm import relax

from collage.backends.onednn.graph import Binary, Dtype, Node, OpKind, Tensor
from collage.backends.onednn.partition import HANDLERS, Importer
from collage.backends.relax.stepped import NAME


def _stepped_matmul(imp: Importer, call: relax.Call) -> Tensor:
    x, weights, scales, *centres = (imp.tensor(arg) for arg in call.args)
    shape, graph = imp.shape(call), imp.graph
    values, step, point, sums = _bytes_of(imp, x)
    ints = range(len(shape))
    product = graph.add(OpKind.BYTES_MATMUL, [values, weights, scales, step, point], shape, ints)
    if not centres:
        return product
    # What the weights lack of their centres: each row's sum, times each column's.
    if centres[0].array is None or scales.array is None:
        raise imp.error("the centres of weights are no constants")
    missing = Tensor.constant((centres[0].array * scales.array)[None])
    column = graph.reshape(sums, (*shape[:-1], 1))
    extra = graph.add(OpKind.MATMUL, [column, missing], shape, ints)
    return graph.add(OpKind.BINARY, [product, extra], shape, [Binary.ADD])


def _bytes_of(imp: Importer, x: Tensor) -> list[Tensor]:
    """Once for all products of the same values."""
    for node in imp.graph.nodes:
        if node.kind is OpKind.QUANTIZE and node.inputs[0] is x:
            return node.writes()
    rows, width = math.prod(x.shape[:-1]), x.shape[-1]
    results = [
        Tensor((rows, width), dtype=Dtype.UINT8),
        Tensor((1,)),
        Tensor((1,), dtype=Dtype.INT32),
        Tensor((rows, 1)),
    ]
    imp.graph.nodes.append(Node(OpKind.QUANTIZE, [x], results[0], others=results[1:]))
    return results


HANDLERS[NAME] = _stepped_matmul
