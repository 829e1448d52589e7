"""A partition as data: tensors with strides and the operations of cuDNN's graph API on them.

The same graph object means the same workload: it is what partitions share, what plans are cached
by, and what the C runtime (``templates/collage_cudnn.h``) builds cuDNN's graph from.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.relax.calls.strided_views import View

DTYPES = ("float16", "bfloat16", "float32")
"""Element types, in the order of ``collage_cudnn_dtype``."""

_MAX_ELEMENTS = 2**31 - 1
"""cuDNN's kernels index with 32 bits."""


class Kind(enum.Enum):
    """An operation; the values are the names of ``collage_cudnn_kind`` without their prefix."""

    CONV = "CONV"
    CONV_DGRAD = "CONV_DGRAD"
    MATMUL = "MATMUL"
    ADD = "ADD"
    RELU = "RELU"
    SIGMOID = "SIGMOID"
    TANH = "TANH"
    SILU = "SILU"
    GELU = "GELU"
    GELU_TANH = "GELU_TANH"
    MAX_POOL = "MAX_POOL"
    AVG_POOL_INCLUDE_PADDING = "AVG_POOL_INCLUDE_PADDING"
    AVG_POOL_EXCLUDE_PADDING = "AVG_POOL_EXCLUDE_PADDING"
    SOFTMAX = "SOFTMAX"
    LAYER_NORM = "LAYER_NORM"
    RMS_NORM = "RMS_NORM"
    ATTENTION = "ATTENTION"


class Causal(enum.IntEnum):
    """Which scores attention leaves out."""

    NONE = 0
    TOP_LEFT = 1
    BOTTOM_RIGHT = 2


@dataclass(frozen=True)
class Tensor:
    """A tensor of a graph.

    Attributes
    ----------
    view : View
        In cuDNN's order of dimensions.
    dtype : str
        One of :data:`DTYPES`. A virtual tensor's is that of its memory, should it need some.
    slot : int
        Position among the graph's inputs, the output being the last; -1 for a virtual tensor.
    """

    view: View
    dtype: str
    slot: int = -1


@dataclass(frozen=True)
class Operation:
    """One operation; ``inputs`` and ``output`` are indices of tensors.

    ``ints`` and ``floats`` are as ``templates/collage_cudnn.h`` lists them by kind.
    """

    kind: Kind
    inputs: tuple[int, ...]
    output: int
    ints: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()


@dataclass(frozen=True)
class Graph:
    """Operations in order; the last one's output is the graph's."""

    tensors: tuple[Tensor, ...]
    operations: tuple[Operation, ...]

    def fields(self) -> dict[str, Any]:
        """The graph as plain JSON values, as tuning records hold it."""
        operations = [
            {
                **dataclasses.asdict(operation),
                "kind": operation.kind.value,
                "floats": [repr(number) for number in operation.floats],
            }
            for operation in self.operations
        ]
        return {
            "tensors": [dataclasses.asdict(tensor) for tensor in self.tensors],
            "operations": operations,
        }

    @property
    def num_slots(self) -> int:
        return sum(tensor.slot >= 0 for tensor in self.tensors)

    def slot_tensor(self, slot: int) -> Tensor:
        """The input of a position, or the output."""
        return next(tensor for tensor in self.tensors if tensor.slot == slot)

    @property
    def name(self) -> str:
        """For messages: operations, dtype and the inputs' and output's dimensions."""
        kinds = "+".join(operation.kind.value.lower() for operation in self.operations)
        shapes = [
            "x".join(map(str, self.slot_tensor(slot).view.shape)) for slot in range(self.num_slots)
        ]
        return f"{kinds} {self.slot_tensor(0).dtype} {' '.join(shapes)}"


@dataclass
class GraphBuilder:
    """Builds a graph: inputs in the order of their slots, then operations.

    Raises
    ------
    UnsupportedProblemError
        When a tensor has a dtype or size that cuDNN does not take.
    """

    dtype: str
    tensors: list[Tensor] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UnsupportedProblemError(
                f"dtype {self.dtype} is not supported; only {', '.join(DTYPES)}"
            )

    def input(self, view: View) -> int:
        """A new input; its slot is the next one."""
        return self._add(view, sum(tensor.slot >= 0 for tensor in self.tensors))

    def apply(
        self,
        kind: Kind,
        inputs: Sequence[int],
        view: View,
        ints: Sequence[int] = (),
        floats: Sequence[float] = (),
    ) -> int:
        """Append an operation; returns the index of its output.

        Parameters
        ----------
        kind : Kind
            Which operation.
        inputs : sequence of int
            Indices of its operands' tensors.
        view : View
            Of its output.
        ints, floats
            Its attributes, in the order that the kind has them.

        Returns
        -------
        int
            The output's index, which later operations take as an input.

        Raises
        ------
        UnsupportedProblemError
            When the output is empty, or has more elements than 32 bits count.
        """
        output = self._add(view, -1)
        operation = Operation(kind, tuple(inputs), output, tuple(ints), tuple(floats))
        self.operations.append(operation)
        return output

    def finish(self) -> Graph:
        """The graph whose output is that of the last operation."""
        output = self.operations[-1].output
        slot = sum(tensor.slot >= 0 for tensor in self.tensors)
        tensors = list(self.tensors)
        tensors[output] = dataclasses.replace(tensors[output], slot=slot)
        return Graph(tuple(tensors), tuple(self.operations))

    def _add(self, view: View, slot: int) -> int:
        if 0 in view.shape:
            raise UnsupportedProblemError(f"a tensor is empty: dimensions {view.shape}")
        if math.prod(view.shape) > _MAX_ELEMENTS:
            raise UnsupportedProblemError(f"a tensor is too large: dimensions {view.shape}")
        self.tensors.append(Tensor(view, self.dtype, slot))
        return len(self.tensors) - 1
