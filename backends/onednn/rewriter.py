"""A region's graph as rules look at it: what computes a tensor, and who reads it."""

from __future__ import annotations

from collections.abc import Callable

from collage.backends.onednn.graph import Eltwise, Graph, Node, OpKind, Tensor


class Rewriter:
    """One sweep over a graph; ``producer`` and ``single`` look at it as it stands."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers = graph.producers()
        self.consumers = graph.consumers()
        self._outputs = set(graph.outputs)

    def producer(self, tensor: Tensor, kind: OpKind) -> Node | None:
        """The node of this kind that computes a tensor.

        Parameters
        ----------
        tensor : Tensor
            What is computed.
        kind : OpKind
            Which operator is looked for.

        Returns
        -------
        Node or None
            None where another kind of node computes it, or none does.
        """
        node = self.producers.get(tensor)
        return node if node is not None and node.kind is kind else None

    def eltwise(self, tensor: Tensor, algorithm: Eltwise) -> Node | None:
        """The elementwise node of this function that computes a tensor.

        Parameters
        ----------
        tensor : Tensor
            What is computed.
        algorithm : Eltwise
            Which function is looked for.

        Returns
        -------
        Node or None
            None where anything else computes it.
        """
        node = self.producer(tensor, OpKind.ELTWISE)
        return node if node is not None and node.ints[0] == algorithm else None

    def single(self, tensor: Tensor) -> bool:
        """Whether one node reads the tensor and the region does not return it."""
        return len(self.consumers.get(tensor, ())) == 1 and tensor not in self._outputs


Rule = Callable[[Rewriter, Node], bool]
"""Changes a node in place to compute its result in a shorter way; says whether it did."""
