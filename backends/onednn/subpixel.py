"""Strided transposed convolutions of few channels as ordinary ones and an interleaving.

The places of the result that are a stride apart form a phase, and go through the same taps of the
kernel: one convolution of stride one gives all phases, each as channels of its own. (Shi et al., Is
the deconvolution layer the same as a convolutional layer?, 2016.) A kernel of the library computes
16 channels at once, however few there are, so one channel of nine phases takes a ninth of the time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collage.backends.onednn.graph import Graph, Node, OpKind, PostOp, Tensor

_LANES = 16
"""Channels of a result that are computed together."""

_WORTH = 0.85
"""Of the multiply-adds of the transposed convolution: with more, the interleaving may cost what is
saved. Of 20 kinds measured, those below came out at 0.1 to 0.9 of its time."""


@dataclass(frozen=True)
class _Axis:
    """A spatial axis: element ``i`` and tap ``k`` add to ``i * stride + k * step - before``."""

    extent: int
    result: int
    kernel: int
    stride: int
    step: int
    before: int

    @property
    def taps(self) -> int:
        """Of the convolution; those of phases that have fewer are zeros."""
        return (self.kernel - 1) * self.step // self.stride + 1

    @property
    def first(self) -> int:
        """The first place of the phases that is computed."""
        return min(self.before // self.stride, self.taps - 1)

    @property
    def cut(self) -> int:
        """Elements of the interleaved phases before the result."""
        return self.before - self.first * self.stride

    @property
    def padding(self) -> tuple[int, int]:
        """Of the convolution, before and behind."""
        places = -(-(self.cut + self.result) // self.stride)
        before = self.taps - 1 - self.first
        return before, max(0, places + self.taps - 1 - self.extent - before)

    @property
    def places(self) -> int:
        """Of each phase."""
        return self.extent + sum(self.padding) - self.taps + 1


def interleave_phases(graph: Graph) -> None:
    """Compute transposed convolutions by phases where that multiplies far less.

    Parameters
    ----------
    graph : Graph
        Fused; changed in place.
    """
    nodes, graph.nodes = graph.nodes, []
    for node in nodes:
        axes = _axes(node) if node.kind is OpKind.DECONV else []
        if axes and _worth(node, axes):
            graph.nodes += _by_phases(node, axes)
        else:
            graph.nodes.append(node)


def _axes(node: Node) -> list[_Axis]:
    """None of a convolution whose weights are computed: they would be rearranged in each call."""
    x, weights = node.inputs[:2]
    if weights.array is None:
        return []
    rank = len(x.shape) - 2
    strides, dilations, before = (node.ints[n * rank : (n + 1) * rank] for n in range(3))
    rows = zip(
        x.shape[2:], node.output.shape[2:], weights.shape[-rank:], strides, dilations, before,
        strict=True,
    )  # fmt: skip
    return [_Axis(n, out, k, stride, d + 1, b) for n, out, k, stride, d, b in rows]


def _groups(node: Node) -> int:
    x, weights = node.inputs[:2]
    return weights.shape[0] if len(weights.shape) > len(x.shape) else 1


def _worth(node: Node, axes: Sequence[_Axis]) -> bool:
    outputs = node.output.shape[1] // _groups(node)
    phases = math.prod(axis.stride for axis in axes)
    places = math.prod(axis.places for axis in axes) * math.prod(axis.taps for axis in axes)
    before = math.prod(axis.extent * axis.kernel for axis in axes)
    return places * _computed(outputs * phases) <= _WORTH * before * _computed(outputs)


def _computed(channels: int) -> int:
    return -(-channels // _LANES) * _LANES


def _by_phases(node: Node, axes: Sequence[_Axis]) -> list[Node]:
    """The convolution, the interleaving, and what could not be computed on phases."""
    x, weights, *bias = node.inputs
    groups, strides = _groups(node), [axis.stride for axis in axes]
    phases = math.prod(strides)
    batch, channels = node.output.shape[:2]

    def repeated(tensor: Tensor) -> Tensor:
        """What each channel has, for each of its phases."""
        assert tensor.array is not None
        of_groups = tensor.array.reshape(groups, 1, channels // groups)
        values = np.broadcast_to(of_groups, (groups, phases, channels // groups))
        shape = (-1,) if len(tensor.shape) == 1 else (1, -1, *tensor.shape[2:])
        return Tensor.constant(values.reshape(shape))

    fused, behind = _split(node, channels)
    computed = Tensor((batch, channels * phases, *(axis.places for axis in axes)))
    padding = [axis.padding for axis in axes]
    convolution = Node(
        OpKind.CONV,
        [x, _kernels(weights, axes, groups), *map(repeated, bias)],
        computed,
        [1] * len(axes) + [0] * len(axes) + [b for b, _ in padding] + [a for _, a in padding],
        post_ops=[
            p if p.tensor is None else PostOp(p.algorithm, p.alpha, p.beta, repeated(p.tensor))
            for p in fused
        ],
    )
    last = Tensor(node.output.shape) if behind else node.output
    cuts = [axis.cut for axis in axes]
    made = [convolution, Node(OpKind.INTERLEAVE, [computed], last, [groups, *strides, *cuts])]
    if behind:
        first, *rest = behind
        kind = OpKind.ELTWISE if first.tensor is None else OpKind.BINARY
        others = [] if first.tensor is None else [first.tensor]
        floats = [first.alpha, first.beta] if first.tensor is None else []
        ints = [first.algorithm]
        made.append(Node(kind, [last, *others], node.output, ints, floats, post_ops=rest))
    return made


def _split(node: Node, channels: int) -> tuple[list[PostOp], list[PostOp]]:
    """Post-operators that treat all places of a channel alike, and those from the first other."""
    for count, post_op in enumerate(node.post_ops):
        other = post_op.tensor
        if other is not None and (other.array is None or other.array.size != channels):
            return node.post_ops[:count], node.post_ops[count:]
    return node.post_ops, []


def _kernels(weights: Tensor, axes: Sequence[_Axis], groups: int) -> Tensor:
    """Each phase's kernel, mirrored, phases before the channels of a group."""
    assert weights.array is not None
    rank = len(axes)
    array = weights.array.reshape(groups, *weights.shape[-rank - 2 :])
    whole = np.zeros((*array.shape[:3], *(axis.taps * axis.stride for axis in axes)), np.float32)
    reached = [slice(0, (a.kernel - 1) * a.step + 1, a.step) for a in axes]
    whole[(slice(None),) * 3 + tuple(reached)] = array
    apart = whole.reshape(*array.shape[:3], *(n for a in axes for n in (a.taps, a.stride)))
    taps, phases = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    ordered = np.flip(apart.transpose(0, *phases, 1, 2, *taps), tuple(range(-rank, 0)))
    outputs = math.prod(axis.stride for axis in axes) * array.shape[1]
    shape = (groups, outputs, array.shape[2], *(axis.taps for axis in axes))
    return Tensor.constant(ordered.reshape(shape if groups > 1 else shape[1:]))
