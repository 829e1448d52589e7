"""Importers of products of 8-bit integers, and of values that are rounded to such."""

from __future__ import annotations

import math

import numpy as np
import tvm
from tvm import relax

from collage.backends.onednn.graph import Binary, Dtype, Eltwise, Node, OpKind, Tensor
from collage.backends.onednn.partition import HANDLERS, Importer, handles
from collage.backends.relax.stepped import NAME, Steps


def _stepped_matmul(imp: Importer, call: relax.Call) -> Tensor:
    x, weights, scales, *centres = (imp.tensor(arg) for arg in call.args)
    shape, graph = imp.shape(call), imp.graph
    values, step, point, sums = _bytes_of(imp, x, Steps.of(call))
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


def _bytes_of(imp: Importer, x: Tensor, steps: Steps | None) -> list[Tensor]:
    """Once for all products of the same values in the same steps."""
    floats = [] if steps is None else [steps.step, float(steps.point)]
    for node in imp.graph.nodes:
        if node.kind is OpKind.QUANTIZE and node.inputs[0] is x and node.floats == floats:
            return node.writes()
    rows, width = math.prod(x.shape[:-1]), x.shape[-1]
    results = [
        Tensor((rows, width), dtype=Dtype.UINT8),
        Tensor((1,)),
        Tensor((1,), dtype=Dtype.INT32),
        Tensor((rows, 1)),
    ]
    imp.graph.nodes.append(
        Node(OpKind.QUANTIZE, [x], results[0], floats=floats, others=results[1:])
    )
    return results


@handles("quantize")
def _quantize(imp: Importer, call: relax.Call) -> Tensor:
    """How many steps a value is from zero; where the steps' numbers begin says only where they
    end."""
    x, graph = imp.tensor(call.args[0]), imp.graph
    step, zero = (_number(imp, arg) for arg in call.args[1:])
    # A quotient rounds as the standard has it, which a product with the inverse does not; of this
    # shape kernels of images and of matrices take it along.
    axis = 1 if len(x.shape) > 3 or _of_image(imp, x) else len(x.shape) - 1
    shape = tuple(n if i == axis else 1 for i, n in enumerate(x.shape))
    divisor = Tensor.constant(np.full(shape, step))
    quotient = graph.add(OpKind.BINARY, [x, divisor], x.shape, [Binary.DIV])
    limits = np.iinfo(str(call.attrs.out_dtype))
    rounded = graph.eltwise(quotient, Eltwise.ROUND)
    return graph.eltwise(rounded, Eltwise.CLIP, limits.min - zero, limits.max - zero)


def _of_image(imp: Importer, x: Tensor) -> bool:
    """Whether a convolution's kernel could take along what is done to its result here."""
    producers = imp.graph.producers()
    node = producers.get(x)
    while node is not None and node.kind in (OpKind.ELTWISE, OpKind.BINARY):
        node = producers.get(node.inputs[0])
    return node is not None and node.kind in (OpKind.CONV, OpKind.DECONV)


@handles("dequantize")
def _dequantize(imp: Importer, call: relax.Call) -> Tensor:
    x = imp.tensor(call.args[0])
    if x.array is not None:
        return _weights(imp, call, x.array)
    return imp.graph.eltwise(x, Eltwise.LINEAR, _number(imp, call.args[1]))


def _weights(imp: Importer, call: relax.Call, whole: np.ndarray) -> Tensor:
    """What whole numbers around zero stand for: a plan finds them again where it has a use."""
    scales = imp.tensor(call.args[1]).array
    if scales is None or _number(imp, call.args[2]) != 0.0:
        raise imp.error("weights in bytes have computed scales, or a zero point")
    along = [1] * whole.ndim
    along[int(call.attrs.axis)] = -1
    return Tensor.constant(whole.astype(np.float32) * scales.reshape(along))


def _number(imp: Importer, expr: relax.Expr) -> float:
    constant = imp.resolved(expr)
    if not isinstance(constant, tvm.ir.GenericConst):
        raise imp.error("a scale or zero point is no constant")
    return float(constant.value.numpy().item())


HANDLERS[NAME] = _stepped_matmul
