"""What candidates do: how much they compute, and how much they read and write."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import tvm
from tvm import relax

from collage.backends.relax.static_shape import tensor_shape
from collage.backends.relax.tensor_spec import TensorSpec
from collage.cost.workload.describe import call_flops
from collage.search.dataflow import DataflowGraph, bits
from collage.search.op_kinds import OpKind
from collage.search.subgraph import SubGraph

_EITHER = (OpKind.ELEMWISE, OpKind.BROADCAST)

_SPATIAL = {"relax.nn.conv1d": "W", "relax.nn.conv2d": "HW", "relax.nn.conv3d": "DHW"}

_TILED = {3: Fraction(2), 5: Fraction(5, 3)}
"""By taps: by so much fewer products do along each of two axes with steps of one. In tiles of six
by six pixels, the largest that kernels have, 36 in place of 144, or in place of 100."""


@dataclass(frozen=True)
class Work:
    """What a set of bindings does.

    Attributes
    ----------
    flops : int
        Of convolutions and matrix products; others count nothing, since memory, not arithmetic,
        bounds them.
    fewest_flops : int
        The same, where convolutions that Winograd's algorithm is for take it, and nothing is
        multiplied with padding.
    bytes : int
        That cross its border.
    kind : str
        The operator that computes most, or the last one where none multiplies.

    Examples
    --------
    >>> Work(flops=2, fewest_flops=2, bytes=12, kind="matmul").kind
    'matmul'
    """

    flops: int
    fewest_flops: int
    bytes: int
    kind: str


class GraphWork:
    """The work of a graph's candidates, each looked at once.

    Parameters
    ----------
    graph : DataflowGraph
        Made from a function.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(2, 4), (4, 8)], lambda _, x, y: relax.op.matmul(x, y))
    >>> GraphWork(DataflowGraph.from_function(mod["main"])).of(0b1)
    Work(flops=128, fewest_flops=128, bytes=224, kind='matmul')
    """

    def __init__(self, graph: DataflowGraph) -> None:
        self._graph = graph
        self._flops = [_multiply_adds(binding.value) for binding in graph.bindings]
        self._fewest = [_fewest(binding.value) for binding in graph.bindings]
        self._work: dict[int, Work] = {}
        self._elsewhere: dict[int, dict[relax.Expr, int]] = {}

    def of(self, nodes: int) -> Work:
        """The work of a set of bindings, by index.

        Parameters
        ----------
        nodes : int
            A bit set; not empty.

        Returns
        -------
        Work
            Nothing is counted twice that several bindings read.
        """
        if nodes not in self._work:
            flops = {index: self._flops[index] for index in bits(nodes)}
            most = max(flops, key=lambda index: (flops[index], index))
            kind = self._graph.op_name(most)
            if not flops[most] and self._graph.op_kind(most) in _EITHER:
                kind = "element-wise"
            fewest = sum(int(self._flops[index] * self._fewest[index]) for index in flops)
            self._work[nodes] = Work(sum(flops.values()), fewest, self._bytes(nodes), kind)
        return self._work[nodes]

    def _bytes(self, nodes: int) -> int:
        """Of what is read from outside, and of what is read there or returned."""
        part = SubGraph(self._graph, nodes)
        bindings = self._graph.bindings
        inner = sum(_size(bindings[index].var) for index in bits(part.input | part.exit))
        outer: dict[relax.Expr, int] = {}
        for index in bits(nodes):
            outer.update(self._from_elsewhere(index))
        return inner + sum(outer.values())

    def _from_elsewhere(self, index: int) -> dict[relax.Expr, int]:
        """The parameters and constants that a binding reads, with their sizes in bytes."""
        if index not in self._elsewhere:
            found: dict[relax.Expr, int] = {}

            def visit(expr: relax.Expr) -> None:
                is_outer = isinstance(expr, relax.Var) and self._graph.find(expr) is None
                if is_outer or isinstance(expr, tvm.ir.GenericConst):
                    found[expr] = _size(expr)

            relax.analysis.post_order_visit(self._graph.bindings[index].value, visit)
            self._elsewhere[index] = found
        return self._elsewhere[index]


def _size(expr: relax.Expr) -> int:
    """Bytes of a tensor; 0 of what is none, or of open extents."""
    return 0 if tensor_shape(expr) is None else TensorSpec.of(expr).bytes


def _multiply_adds(value: relax.Expr) -> int:
    """Floating-point operations of convolutions and matrix products."""
    if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
        name = str(value.op.name)
        if name == "relax.matmul" or name.startswith("relax.nn.conv"):
            return call_flops(value)
    return 0


def _seen(read: int, made: int, step: int, offset: int) -> int:
    """So many of the results along an axis have a tap inside of what is read."""
    return max(0, min(made, (read - 1 - offset) // step + 1) - max(0, -(offset // step)))


def _fewest(value: relax.Expr) -> Fraction:
    """Of the products of all pixels with all taps, those that an operator cannot do without."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return Fraction(1)
    attrs, axes = value.attrs, _SPATIAL.get(str(value.op.name), "")
    if not axes:
        return Fraction(1)
    found = [tensor_shape(expr) for expr in (value.args[0], value.args[1], value)]
    shapes = [shape for shape in found if shape is not None]
    if len(shapes) < len(found):
        return Fraction(1)
    layouts = [str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)]
    kept, saved = Fraction(1), []
    for i, axis in enumerate(axes):
        read, taps, made = (
            shape[layout.index(axis)] for shape, layout in zip(shapes, layouts, strict=True)
        )
        step, between, before = (int(v[i]) for v in (attrs.strides, attrs.dilation, attrs.padding))
        seen = sum(_seen(read, made, step, tap * between - before) for tap in range(taps))
        kept *= Fraction(seen, made * taps)
        if step == 1 and taps in _TILED:
            saved.append(max(Fraction(1), Fraction(seen, made * taps) * _TILED[taps]))
    return kept / math.prod(sorted(saved)[-2:])
