"""Cuts a graph at what has a mark into parts and regions; bodies are graphs of their own."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from torch import fx

from collage.course import Choose, Region, Repeat, Step
from collage.importers.courses.values import Value
from collage.importers.torch.courses.parts import Parts
from collage.importers.torch.courses.written import choice, is_cut
from collage.importers.torch.nodes import type_name

_ROLES = ("then", "else")


class Cutter:
    """Cuts one program.

    Parameters
    ----------
    parts : Parts
        Imports what lies between.
    values : dict of str to Value
        What is there, by name; gets more.
    """

    def __init__(self, parts: Parts, values: dict[str, Value]) -> None:
        self._parts = parts
        self._values = values
        self._count = 0

    def cut(self, graph: fx.Graph, given: Sequence[str], role: str) -> Region:
        """A graph over the values that are there as steps.

        Parameters
        ----------
        graph : fx.Graph
            Its nodes have no bodies but those with a mark.
        given : sequence of str
            The values that its inputs are.
        role : str
            What its parts are called.

        Returns
        -------
        Region
            Its steps and results.

        Raises
        ------
        ModelError
            For what cannot be imported.
        """
        names = dict(zip(graph.find_nodes(op="placeholder"), given, strict=True))
        prefix = self._fresh(role)
        (output,) = graph.find_nodes(op="output")
        results: Sequence[fx.Node] = output.args[0]
        steps: list[Step] = []
        levels = _levels(graph)
        marked = [node for node in graph.nodes if is_cut(node)]
        for level in range(max(map(levels.__getitem__, marked), default=-1) + 1):
            here = [node for node in marked if levels[node] == level]
            later = [
                node
                for node in graph.nodes
                if levels[node] > level or node in here or node.op == "output"
            ]
            wanted = [
                one
                for node in later
                for one in node.all_input_nodes
                if levels[one] <= level and not is_cut(one)
            ]
            steps += self._parts.run(wanted, names, prefix, role)
            for node in here:
                self._take(node, names, prefix, steps)
        steps += self._parts.run(results, names, prefix, role)
        return Region(tuple(steps), tuple(names[node] for node in results))

    def _take(
        self, node: fx.Node, names: dict[fx.Node, str], prefix: str, steps: list[Step]
    ) -> None:
        """The step of a node with a mark; its results are there then."""
        outputs = [f"{prefix}{node.name}.{place}" for place in range(len(node.meta["val"]))]
        for output, like in zip(outputs, node.meta["val"], strict=True):
            self._values[output] = Value(tuple(map(int, like.shape)), type_name(like.dtype))
        for user in node.users:
            assert user.target is operator.getitem, "only fields are read"
            names[user] = outputs[user.args[1]]

        def names_of(nodes: Any) -> list[str]:
            return [names[one] for one in nodes]

        if node.target is choice:
            condition, operands = node.args
            then, otherwise = (
                self.cut(graph, names_of(operands), role)
                for graph, role in zip(node.meta["graphs"], _ROLES, strict=True)
            )
            steps.append(Choose(names[condition], then, otherwise, tuple(outputs)))
            return
        initial, others = map(names_of, node.args)
        states = [f"{self._fresh('state')}{place}" for place in range(len(initial))]
        for state, output in zip(states, outputs, strict=True):
            self._values[state] = self._values[output]
        body = self.cut(node.meta["graph"], [*states, *others], "body")
        steps.append(Repeat(tuple(initial), tuple(states), body, tuple(outputs)))

    def _fresh(self, what: str) -> str:
        self._count += 1
        return f"{what}{self._count}."


def _levels(graph: fx.Graph) -> dict[fx.Node, int]:
    """How many nodes with a mark come before each, one after the other."""
    levels: dict[fx.Node, int] = {}
    for node in graph.nodes:
        before = (levels[one] + is_cut(one) for one in node.all_input_nodes)
        levels[node] = max(before, default=0)
    return levels
