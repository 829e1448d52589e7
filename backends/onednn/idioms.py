"""Chains of simple operators that oneDNN has one operator for, found in a region's graph."""

from __future__ import annotations

from collage.backends.onednn import activations
from collage.backends.onednn.graph import Binary, Eltwise, Graph, Node, OpKind, Pool, Tensor
from collage.backends.onednn.rewriter import Rewriter, Rule


def simplify(graph: Graph) -> None:
    """Apply every rule until none applies, then drop what nobody reads any more."""
    changed = True
    while changed:
        changed = False
        for rule in _RULES:
            rewriter = Rewriter(graph)
            # Each rule changes nodes only after looking: stop at the first change and look anew.
            hits = [node for node in graph.nodes if rule(rewriter, node)]
            changed = changed or bool(hits)
        graph.drop_dead()


def _through(rewriter: Rewriter, tensor: Tensor, kind: OpKind) -> Tensor | None:
    node = rewriter.producer(tensor, kind)
    return node.inputs[0] if node is not None else None


def _lrn(rewriter: Rewriter, node: Node) -> bool:
    """``x / (k + alpha * mean of squares over neighbouring channels) ** beta``."""
    if node.kind is not OpKind.BINARY or node.ints[0] != Binary.DIV:
        return False
    x, divisor = node.inputs
    power = rewriter.eltwise(divisor, Eltwise.POW)
    linear = rewriter.eltwise(power.inputs[0], Eltwise.LINEAR) if power is not None else None
    if power is None or linear is None or power.floats[0] != 1.0 or len(x.shape) != 4:
        return False
    pooled = _through(rewriter, linear.inputs[0], OpKind.RESHAPE)
    pool = rewriter.producer(pooled, OpKind.POOL) if pooled is not None else None
    squared = _through(rewriter, pool.inputs[0], OpKind.RESHAPE) if pool is not None else None
    square = rewriter.eltwise(squared, Eltwise.SQUARE) if squared is not None else None
    if pool is None or square is None or square.inputs[0] is not x:
        return False
    size = pool.ints[1]
    batch, channels, height, width = x.shape
    wanted = [Pool.AVERAGE_WITH_PADDING, size, 1, 1, 1, 0, 0, size // 2, 0, size // 2, 0]
    over_channels = pool.inputs[0].shape == (batch, 1, channels, height * width)
    if size % 2 == 0 or pool.ints != wanted or not over_channels:
        return False
    alpha, k = linear.floats
    node.kind, node.inputs, node.ints = OpKind.LRN, [x], [size]
    node.floats = [alpha, power.floats[1], k]
    return True


def _shuffle(rewriter: Rewriter, node: Node) -> bool:
    """Channels regrouped by reshape, permute, reshape."""
    if node.kind is not OpKind.RESHAPE:
        return False
    permute = rewriter.producer(node.inputs[0], OpKind.PERMUTE)
    if permute is None or permute.ints != [0, 2, 1, 3, 4]:
        return False
    x = _through(rewriter, permute.inputs[0], OpKind.RESHAPE)
    if x is None or len(x.shape) != 4 or x.shape != node.output.shape:
        return False
    batch, channels, height, width = x.shape
    groups = permute.inputs[0].shape[1]
    if permute.inputs[0].shape != (batch, groups, channels // groups, height, width):
        return False
    node.kind, node.inputs = OpKind.SHUFFLE, [x]
    node.ints = [groups]
    return True


def _pad_into_conv(rewriter: Rewriter, node: Node) -> bool:
    """Zero padding of the picture just before a convolution becomes the convolution's own."""
    if node.kind is not OpKind.CONV:
        return False
    pad = rewriter.producer(node.inputs[0], OpKind.PAD)
    if pad is None or len(pad.ints) != 8 or any(pad.ints[:4]) or pad.floats != [0.0]:
        return False
    top, bottom, left, right = pad.ints[4:]
    node.inputs[0] = pad.inputs[0]
    node.ints[4:] = [v + w for v, w in zip(node.ints[4:], (top, left, bottom, right), strict=True)]
    return True


def _whole_of_slices(rewriter: Rewriter, node: Node) -> bool:
    """Neighbouring slices that are concatenated again are what they were cut from."""
    if node.kind is not OpKind.CONCAT:
        return False
    axis = node.ints[0]
    joined: list[Tensor] = []
    left = list(node.inputs)
    while left:
        whole, taken = _first_whole(rewriter, left, axis)
        joined.append(whole)
        del left[:taken]
    if len(joined) == len(node.inputs):
        return False
    node.inputs = joined
    return True


def _first_whole(rewriter: Rewriter, parts: list[Tensor], axis: int) -> tuple[Tensor, int]:
    """What the first parts make up when they are all slices of it, and how many they are."""
    first = rewriter.producer(parts[0], OpKind.SLICE)
    end = 0
    for count, part in enumerate(parts, 1):
        piece = rewriter.producer(part, OpKind.SLICE)
        if first is None or piece is None or piece.inputs[0] is not first.inputs[0]:
            break
        if piece.ints != [end if i == axis else 0 for i in range(len(part.shape))]:
            break
        end += part.shape[axis]
        whole = piece.inputs[0]
        if end == whole.shape[axis] and count > 1:
            others = zip(part.shape, whole.shape, strict=True)
            if all(a == b for i, (a, b) in enumerate(others) if i != axis):
                return whole, count
    return parts[0], 1


def _grown(rewriter: Rewriter, node: Node) -> bool:
    """What joins all that another one joins, and more behind it, begins with that one's result."""
    if node.kind is not OpKind.CONCAT:
        return False
    before: Node | None = None
    for other in rewriter.graph.nodes:
        if other is node:
            break
        count = len(other.inputs)
        joins = other.kind is OpKind.CONCAT and other.ints == node.ints and count > 1
        if joins and count < len(node.inputs) and other.inputs == node.inputs[:count]:
            before = before if before and len(before.inputs) > count else other
    if before is None:
        return False
    node.inputs[: len(before.inputs)] = [before.output]
    return True


def _select(rewriter: Rewriter, node: Node) -> bool:
    """Channels that are concatenated, shuffled and cut are picked from where they were computed."""
    channels = _picked(rewriter, node)
    if channels is None:
        return False
    sources = list(dict.fromkeys(tensor for tensor, _ in channels))
    node.kind, node.inputs = OpKind.SELECT, sources
    node.ints = [number for tensor, c in channels for number in (sources.index(tensor), c)]
    return True


def _picked(rewriter: Rewriter, node: Node) -> list[tuple[Tensor, int]] | None:
    """Which channel of which tensor each channel of a result is, where that is worth a kernel."""
    if node.kind is OpKind.SHUFFLE:
        joined = rewriter.producer(node.inputs[0], OpKind.CONCAT)
        if joined is None or joined.ints != [1]:
            return None
        groups, width = node.ints[0], node.output.shape[1]
        together = [(t, c) for t in joined.inputs for c in range(t.shape[1])]
        return [together[c % groups * (width // groups) + c // groups] for c in range(width)]
    if node.kind is OpKind.SLICE:
        whole = rewriter.producer(node.inputs[0], OpKind.SELECT)
        begin = _first_channel(node)
        if whole is None or begin is None:
            return None
        return _channels(whole)[begin : begin + node.output.shape[1]]
    if node.kind is OpKind.SELECT:
        inner = {tensor: _origin(rewriter, tensor) for tensor in node.inputs}
        if not any(inner.values()):
            return None
        return [
            (tensor, c) if (channels := inner[tensor]) is None else channels[c]
            for tensor, c in _channels(node)
        ]
    return None


def _origin(rewriter: Rewriter, tensor: Tensor) -> list[tuple[Tensor, int]] | None:
    """Which channels of other tensors a tensor consists of; None when it was computed."""
    select = rewriter.producer(tensor, OpKind.SELECT)
    if select is not None:
        return _channels(select)
    piece = rewriter.producer(tensor, OpKind.SLICE)
    begin = None if piece is None else _first_channel(piece)
    if piece is None or begin is None:
        return None
    return [(piece.inputs[0], begin + c) for c in range(tensor.shape[1])]


def _first_channel(piece: Node) -> int | None:
    """Where a slice begins; None when it cuts anything else than channels."""
    given, made = piece.inputs[0].shape, piece.output.shape
    cut = [i for i, (a, b) in enumerate(zip(given, made, strict=True)) if a != b]
    return piece.ints[1] if cut == [1] else None


def _channels(select: Node) -> list[tuple[Tensor, int]]:
    pairs = zip(select.ints[::2], select.ints[1::2], strict=True)
    return [(select.inputs[number], channel) for number, channel in pairs]


_RULES: tuple[Rule, ...] = (
    *activations.RULES, _lrn, _shuffle, _pad_into_conv, _whole_of_slices, _grown, _select,
)  # fmt: skip
