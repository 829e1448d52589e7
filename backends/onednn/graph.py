"""A region as a flat graph of oneDNN-like operators: what the plan is made from.

Composite functions say what may run together; how a region's operators are fused is decided anew
over the whole region (``fuse.py``), because a joined region shows more than one composite does.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


class OpKind(enum.IntEnum):
    """Operators of the runtime; same order as in ``templates/plan.h``."""

    CONV = 0
    MATMUL = 1
    POOL = 2
    SOFTMAX = 3
    LAYER_NORM = 4
    LRN = 5
    BINARY = 6
    ELTWISE = 7
    REDUCTION = 8
    RESHAPE = 9
    PERMUTE = 10
    SLICE = 11
    CONCAT = 12
    SHUFFLE = 13
    PAD = 14
    DECONV = 15
    RESAMPLE = 16
    RECURRENT = 17
    QUANTIZE = 18
    BYTES_MATMUL = 19
    BYTES_CONV = 20
    DEQUANTIZE = 21
    SELECT = 22
    SCALE_WEIGHTS = 23
    INTERLEAVE = 24


class Source(enum.IntEnum):
    """Where a tensor comes from."""

    COMPUTED = 0
    INPUT = 1
    CONSTANT = 2


class Dtype(enum.IntEnum):
    """Element types."""

    FLOAT32 = 0
    UINT8 = 1
    INT8 = 2
    INT32 = 3


class Eltwise(enum.IntEnum):
    """Elementwise functions with their parameters alpha and beta, as oneDNN defines them."""

    RELU = 0
    """``max(x, alpha * x)``"""
    CLIP = 1
    """``min(max(x, alpha), beta)``"""
    LOGISTIC = 2
    TANH = 3
    GELU_ERF = 4
    GELU_TANH = 5
    SWISH = 6
    """``x * logistic(alpha * x)``"""
    HARD_SWISH = 7
    """``x * min(max(alpha * x + beta, 0), 1)``"""
    HARD_SIGMOID = 8
    """``min(max(alpha * x + beta, 0), 1)``"""
    EXP = 9
    SQRT = 10
    SQUARE = 11
    LINEAR = 12
    """``alpha * x + beta``"""
    POW = 13
    """``alpha * x ** beta``"""
    ABS = 14
    LOG = 15
    ELU = 16
    """``x`` where it is positive, else ``alpha * (exp(x) - 1)``"""
    ROUND = 17
    SOFT_RELU = 18
    """``log(1 + exp(alpha * x)) / alpha``"""
    MISH = 19
    """``x * tanh(log(1 + exp(x)))``"""


class Binary(enum.IntEnum):
    """Two-operand functions."""

    ADD = 0
    SUB = 1
    MUL = 2
    DIV = 3
    MAX = 4
    MIN = 5
    PRELU = 6
    """The first where it is positive, else times the second, which is constant, by channel."""


COMMUTATIVE = frozenset({Binary.ADD, Binary.MUL, Binary.MAX, Binary.MIN})


class Pool(enum.IntEnum):
    """Pooling functions; an average counts padding or does not."""

    MAX = 0
    AVERAGE_WITH_PADDING = 1
    AVERAGE = 2


class Reduction(enum.IntEnum):
    """Reductions."""

    MEAN = 0
    SUM = 1
    MAX = 2
    MIN = 3


@dataclass(eq=False)
class Tensor:
    """A tensor, compared by identity; of float32 but for bytes and what belongs to them.

    ``index`` is the argument's position for an input; ``array`` the value of a constant.
    """

    shape: tuple[int, ...]
    source: Source = Source.COMPUTED
    index: int = 0
    array: np.ndarray | None = None
    dtype: Dtype = Dtype.FLOAT32

    @classmethod
    def constant(cls, array: np.ndarray) -> Tensor:
        """A constant tensor; row-major, of float32 unless it is of int8."""
        dtype = Dtype.INT8 if array.dtype == np.int8 else Dtype.FLOAT32
        array = np.ascontiguousarray(array, dtype=dtype.name.lower())
        return cls(tuple(array.shape), Source.CONSTANT, array=array, dtype=dtype)

    def is_scalar_constant(self) -> bool:
        return self.array is not None and self.array.size == 1

    def scalar(self) -> float:
        assert self.array is not None
        return float(self.array.reshape(-1)[0])


@dataclass(frozen=True)
class PostOp:
    """An operator that a kernel applies to its result before writing it.

    ``tensor`` is the other operand of a binary one, None for an elementwise one.
    """

    algorithm: int
    alpha: float = 0.0
    beta: float = 0.0
    tensor: Tensor | None = None


@dataclass(eq=False)
class Node:
    """One operator; what ``ints`` and ``floats`` mean stands with its kernel in ``templates/``.

    ``others`` are its results behind the first one, of those that have several.
    """

    kind: OpKind
    inputs: list[Tensor]
    output: Tensor
    ints: list[int] = field(default_factory=list)
    floats: list[float] = field(default_factory=list)
    post_ops: list[PostOp] = field(default_factory=list)
    others: list[Tensor] = field(default_factory=list)

    def writes(self) -> list[Tensor]:
        """All of its results."""
        return [self.output, *self.others]

    def reads(self) -> list[Tensor]:
        """Every tensor it reads, those of its post-operators included."""
        return [*self.inputs, *(p.tensor for p in self.post_ops if p.tensor is not None)]


@dataclass
class Graph:
    """Nodes in an order in which they can run."""

    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def add(
        self,
        kind: OpKind,
        inputs: Sequence[Tensor],
        shape: Sequence[int],
        ints: Sequence[int] = (),
        floats: Sequence[float] = (),
    ) -> Tensor:
        """Append a node and return its result.

        Parameters
        ----------
        kind : OpKind
            Which operator.
        inputs : sequence of Tensor
            What it reads.
        shape : sequence of int
            Of its result.
        ints, floats
            Attributes, in the order that the runtime reads them.

        Returns
        -------
        Tensor
            Of float32, unless it is changed afterwards.
        """
        output = Tensor(tuple(shape))
        self.nodes.append(Node(kind, list(inputs), output, list(ints), list(floats)))
        return output

    def eltwise(
        self, x: Tensor, algorithm: Eltwise, alpha: float = 0.0, beta: float = 0.0
    ) -> Tensor:
        """Append an elementwise operator of oneDNN and return its result.

        Parameters
        ----------
        x : Tensor
            What it is applied to.
        algorithm : Eltwise
            Which function.
        alpha, beta : float
            The function's parameters, as oneDNN defines them.

        Returns
        -------
        Tensor
            Of the operand's shape.
        """
        return self.add(OpKind.ELTWISE, [x], x.shape, [algorithm], [alpha, beta])

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """A view of another shape; of a constant, a constant.

        Parameters
        ----------
        x : Tensor
            What is viewed.
        shape : sequence of int
            Of as many elements.

        Returns
        -------
        Tensor
            ``x`` itself where it has that shape.
        """
        if tuple(shape) == x.shape:
            return x
        if x.array is not None:
            return Tensor.constant(x.array.reshape(shape))
        return self.add(OpKind.RESHAPE, [x], shape)

    def permute(self, x: Tensor, order: Sequence[int]) -> Tensor:
        """A tensor with its axes in another order; of a constant, a constant.

        Parameters
        ----------
        x : Tensor
            Whose axes they are.
        order : sequence of int
            For each axis of the result, that of ``x``.

        Returns
        -------
        Tensor
            Of the permuted shape.
        """
        if x.array is not None:
            return Tensor.constant(x.array.transpose(order))
        return self.add(OpKind.PERMUTE, [x], [x.shape[axis] for axis in order], list(order))

    def consumers(self) -> dict[Tensor, list[Node]]:
        """The nodes that read each tensor, once per reading."""
        result: dict[Tensor, list[Node]] = {}
        for node in self.nodes:
            for tensor in node.reads():
                result.setdefault(tensor, []).append(node)
        return result

    def producers(self) -> dict[Tensor, Node]:
        return {tensor: node for node in self.nodes for tensor in node.writes()}

    def drop_dead(self) -> None:
        """Remove nodes whose results nobody reads."""
        live = set(self.outputs)
        kept = []
        for node in reversed(self.nodes):
            if not live.isdisjoint(node.writes()):
                live.update(node.reads())
                kept.append(node)
        self.nodes = kept[::-1]
