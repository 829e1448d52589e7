"""Normalizations that TVM's importer gets wrong or lacks, and their further results."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.node import Node, Refused, const

_HALF = ("float16", "bfloat16")


def _batch_norm(node: Node) -> relax.Expr | None:
    """TVM's, but in training mode, which normalizes by the batch that it sees, and with numbers
    of its own for each place (``spatial`` of the sets before 9)."""
    training, places = _trains(node), node.opset < _PLACES_END and not node.integer("spatial", 1)
    if not training and not places:
        return None
    emit, shape, kind = node.emit, node.shape(0), node.dtype(0)
    own = shape[1:] if places else shape[1:2]
    axes = [0, *range(1 + len(own), len(shape))]
    column = [1, *own, *[1] * (len(axes) - 1)]
    x = emit(op.astype(node.operand(0), "float32"))
    if training:
        mean, variance = (emit(f(x, axes, keepdims=True)) for f in (op.mean, op.variance))
    else:
        mean, variance = (
            emit(op.astype(emit(op.reshape(node.operand(i), column)), "float32")) for i in (3, 4)
        )
    normal = _scaled_down(node, x, mean, variance)
    scale, shift = (emit(op.reshape(node.operand(i), column)) for i in (1, 2))
    scaled = emit(op.multiply(emit(op.astype(normal, kind)), scale))
    result = emit(op.add(scaled, shift))
    return relax.Tuple([result, *_running(node, mean, variance)][: node.outputs])


_MODE_IS_NAMED = 14
"""The first set in which an attribute says whether a batch norm trains: before, it did so wherever
it had more results than one, whoever used them."""

_PLACES_END = 9
"""The first set without batch norms that have numbers for each place."""


def _trains(node: Node) -> bool:
    if node.opset >= _MODE_IS_NAMED:
        return bool(node.integer("training_mode", 0))
    return node.outputs > 1


def _running(node: Node, mean: relax.Expr, variance: relax.Expr) -> list[relax.Expr]:
    """What a batch norm gives besides: what it keeps of what it has seen, and what it saw."""
    emit = node.emit
    if node.outputs > _SAVED_VARIANCE:
        raise Refused(
            "its fifth result is used, which is a variance in the standard and one over a "
            "deviation in onnxruntime; export the model for inference (after model.eval())"
        )
    kept = node.number("momentum", 0.9)
    running, saved = [], []
    for index, seen in ((3, mean), (4, variance))[: max(0, node.outputs - 1)]:
        dtype = node.dtype(index)
        flat = emit(op.astype(emit(op.reshape(seen, node.shape(index))), dtype))
        old = emit(op.multiply(node.operand(index), const(kept, dtype)))
        running.append(emit(op.add(old, emit(op.multiply(flat, const(1 - kept, dtype))))))
        saved.append(flat)
    return [*running, *saved]


_SAVED_VARIANCE = 4
"""Which result of a batch norm is the variance that it saw."""


def _scaled_down(node: Node, x: relax.Expr, mean: relax.Expr, variance: relax.Expr) -> relax.Expr:
    """Values less their mean, divided by their deviation."""
    return node.emit(
        op.multiply(node.emit(op.subtract(x, mean)), _inverse_deviation(node, variance))
    )


def _inverse_deviation(node: Node, variance: relax.Expr) -> relax.Expr:
    epsilon = const(node.number("epsilon", 1e-5), "float32")
    return node.emit(op.rsqrt(node.emit(op.add(variance, epsilon))))


def _layer_norm(node: Node) -> relax.Expr | None:
    """TVM's, but where the mean or the deviation is asked for too."""
    if node.outputs == 1:
        return None
    emit, rank, kind = node.emit, len(node.shape(0)), node.dtype(0)
    axes = list(range(node.integer("axis", -1) % rank, rank))
    x = emit(op.astype(node.operand(0), "float32"))
    mean, variance = (emit(f(x, axes, keepdims=True)) for f in (op.mean, op.variance))
    result = emit(op.astype(_scaled_down(node, x, mean, variance), kind))
    result = emit(op.multiply(result, node.operand(1)))
    if node.has(2):
        result = emit(op.add(result, node.operand(2)))
    return relax.Tuple([result, mean, _inverse_deviation(node, variance)])


def _local_response(node: Node) -> relax.Expr | None:
    """TVM's, but for even windows, which reach farther up than down, and for few digits."""
    size = node.integer("size", 1)
    emit, shape, given = node.emit, node.shape(0), node.dtype(0)
    if size % 2 and given not in _HALF:
        return None
    kind = "float32" if given in _HALF else given
    x = emit(op.astype(node.operand(0), kind)) if given in _HALF else node.operand(0)
    below, above = (size - 1) // 2, size // 2
    pads = [0] * (2 * len(shape))
    pads[2], pads[3] = below, above
    squares = emit(op.nn.pad(emit(op.multiply(x, x)), pads))
    total = emit(op.strided_slice(squares, [1], [0], [shape[1]]))
    for first in range(1, size):
        total = emit(
            op.add(total, emit(op.strided_slice(squares, [1], [first], [first + shape[1]])))
        )
    share = const(node.number("alpha", 1e-4) / size, kind)
    base = emit(op.add(emit(op.multiply(total, share)), const(node.number("bias", 1.0), kind)))
    found = emit(op.divide(x, emit(op.power(base, const(node.number("beta", 0.75), kind)))))
    return emit(op.astype(found, given)) if given in _HALF else found


def _root_mean_square(node: Node) -> relax.Expr | None:
    """TVM's, but for a normalization over all axes."""
    rank = len(node.shape(0))
    axis = node.integer("axis", -1) % rank
    if axis:
        return None
    emit, kind = node.emit, node.dtype(0)
    x = emit(op.astype(node.operand(0), "float32"))
    mean = emit(op.mean(emit(op.multiply(x, x)), list(range(rank)), keepdims=True))
    shifted = emit(op.add(mean, const(node.number("epsilon", 1e-5), "float32")))
    normal = emit(op.astype(emit(op.multiply(x, emit(op.rsqrt(shifted)))), kind))
    return emit(op.multiply(normal, node.operand(1)))


CONVERTERS = {
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "LRN": _local_response,
    "RMSNormalization": _root_mean_square,
}
