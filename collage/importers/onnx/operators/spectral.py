"""Fourier transforms of a fixed length."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.backends.relax.fourier import LONGEST, transform_matrix
from collage.importers.onnx.operators.node import (
    Array,
    Node,
    Refused,
    const,
    fixed_tensor,
    shape_of,
)


def _dft(node: Node) -> relax.Expr:
    emit, shape, dtype = node.emit, node.shape(0), node.dtype(0)
    inverse, onesided = bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0))
    if node.has(2):
        axis = int(node.fixed(2, "axis").item())
    else:
        axis = node.integer("axis", 1 if node.opset < 20 else -2)
    axis %= len(shape)
    real_back = inverse and onesided
    usual = 2 * (shape[axis] - 1) if real_back else shape[axis]
    length = int(node.fixed(1, "length").item()) if node.has(1) else usual
    bins = length // 2 + 1 if onesided else length
    x = _moved(node, node.operand(0), axis, len(shape) - 2)
    x = _fitted(node, x, len(shape) - 2, bins if real_back else length)
    result = _transformed(node, x, _matrix(length, bins, inverse, real_back), dtype)
    moved = _moved(node, result, len(shape) - 2, axis)
    return emit(moved) if isinstance(moved, relax.Call) else moved


def _moved(node: Node, x: relax.Expr, source: int, to: int) -> relax.Expr:
    if source == to:
        return x
    order = [axis for axis in range(len(shape_of(x))) if axis != source]
    order.insert(to, source)
    return node.emit(op.permute_dims(x, order))


def _fitted(node: Node, x: relax.Expr, axis: int, length: int) -> relax.Expr:
    """An axis cut off, or filled up with zeros."""
    shape = shape_of(x)
    if shape[axis] > length:
        return node.emit(op.strided_slice(x, [axis], [0], [length]))
    if shape[axis] == length:
        return x
    pads = [0] * (2 * len(shape))
    pads[2 * axis + 1] = length - shape[axis]
    return node.emit(op.nn.pad(x, pads))


def _matrix(length: int, bins: int, inverse: bool, real_back: bool) -> Array:
    if length > LONGEST:
        raise Refused(f"a transform of length {length}; up to {LONGEST} are computed as a product")
    return transform_matrix(length, bins, inverse=inverse, real_back=real_back)


def _transformed(node: Node, x: relax.Expr, matrix: Array, dtype: str) -> relax.Expr:
    """The last two axes (place and part) times a matrix of :func:`_matrix`."""
    shape = shape_of(x)
    parts = shape[-1]
    if parts not in (1, 2):
        raise Refused(f"a last axis of {parts}; it holds the real and the imaginary part")
    used = matrix[:, :parts]
    rows = const(used.reshape(used.shape[0] * parts, -1), dtype)
    flat = node.emit(op.reshape(x, [*shape[:-2], shape[-2] * parts]))
    product = node.emit(op.matmul(flat, rows))
    return node.emit(op.reshape(product, [*shape[:-2], *matrix.shape[2:]]))


def _stft(node: Node) -> relax.Expr:
    emit, dtype = node.emit, node.dtype(0)
    # Without a last axis it is real, which the standard does not say, and runtimes take.
    batch, signal, parts = (*node.shape(0), 1)[:3]
    step = int(node.fixed(1, "frame step").item())
    if node.has(3):
        length = int(node.fixed(3, "frame length").item())
    else:
        length = node.shape(2)[0] if node.has(2) else signal
    frames = (signal - length) // step + 1
    onesided = bool(node.integer("onesided", 1)) and parts == 1
    places = np.arange(frames)[:, None] * step + np.arange(length)[None, :]
    cut = emit(op.take(node.operand(0), fixed_tensor(places.reshape(-1).astype("int32")), 1))
    cut = emit(op.reshape(cut, [batch, frames, length, parts]))
    if node.has(2):
        window = emit(op.reshape(node.operand(2), [1, 1, length, 1]))
        cut = emit(op.multiply(cut, window))
    bins = length // 2 + 1 if onesided else length
    return _transformed(node, cut, _matrix(length, bins, False, False), dtype)


CONVERTERS = {"DFT": _dft, "STFT": _stft}
