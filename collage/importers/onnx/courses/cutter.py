"""Cuts a graph at the nodes whose course data choose.

What a graph computes before such a node, between two and behind them becomes a part each; bodies
are cut like graphs of their own. Where the branches of an If give different shapes, all that comes
behind it belongs to either branch, so that shapes are numbers everywhere; what the model gives then
is as large as the larger, and cut to what there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from collage.backends.contract.errors import ModelError
from collage.course import Choose, Fail, Region, Repeat, Step
from collage.importers.courses.values import Value
from collage.importers.onnx.courses.larger import Cut, enlarged, fit_together, larger_of
from collage.importers.onnx.courses.parts import ImpossibleError, Parts
from collage.importers.onnx.courses.rounds import (
    as_rounds,
    is_loop_of_known_rounds,
    with_rows,
)
from collage.importers.onnx.courses.stages import copies_under, stages_of, without_identities
from collage.importers.onnx.courses.values import (
    Constants,
    Scope,
    body_results,
    body_under,
    graph_attribute,
    renamed,
)
from collage.importers.onnx.known import names_used
from collage.importers.onnx.straight import DataDecideError
from collage.importers.onnx.support import node_label

_MOST_UNROLLED = 2000
"""Nodes of a loop that is written out round by round."""

_DEEPEST = 16
"""Levels of nested bodies."""

_ROLES = ("then", "else")


@dataclass(frozen=True)
class Graph:
    """Nodes that are to be cut, and what they are there for."""

    nodes: list[onnx.NodeProto]
    results: Sequence[str]
    role: str
    outermost: bool = False
    depth: int = 0


class Cutter:
    """Cuts one model.

    Parameters
    ----------
    parts : Parts
        Imports what lies between.
    constants : Constants
        What is known before anything runs.

    Attributes
    ----------
    remarks : list of str
        What the user should know.
    """

    def __init__(self, parts: Parts, constants: Constants) -> None:
        self._parts = parts
        self._constants = constants
        self._count = 0
        self.remarks: list[str] = []

    def cut(self, graph: Graph, scope: Scope) -> Cut:
        """A graph over the values that are there as steps; as one, where that is possible.

        Parameters
        ----------
        graph : Graph
            Nodes and results.
        scope : dict of str to Value
            What is there; gets what the steps give.

        Returns
        -------
        Cut
            Its steps, and what its results are.

        Raises
        ------
        ModelError
            For what cannot be cut, or imported.
        """
        if graph.depth > _DEEPEST:
            raise ModelError(
                f"control flow is nested deeper than {_DEEPEST} levels", value=_DEEPEST
            )
        try:
            steps = self._parts.run(
                graph.nodes, graph.results, scope, graph.role, at_any_price=False
            )
        except DataDecideError:
            return self._instages_of(graph, scope)
        return self._finished(list(steps), graph.results, scope)

    def _finished(self, steps: list[Step], results: Sequence[str], scope: Scope) -> Cut:
        values = [self._value(name, scope) for name in results]
        return Cut(Region(tuple(steps), tuple(results)), values)

    def _value(self, name: str, scope: Scope) -> Value:
        return scope[name] if name in scope else self._constants.value(name)

    def _instages_of(self, graph: Graph, scope: Scope) -> Cut:
        """A graph as steps, in the order of the nodes that are cut out of it."""
        counts: dict[str, str] = {}
        nodes = self._parts.without_known(graph.nodes, scope)
        stages = stages_of([inner for node in nodes for inner in self._written(node, counts)])
        steps: list[Step] = []
        names: dict[str, str] = {}
        results = list(graph.results)
        for stage in range(stages.count):
            cut = stages.cut.get(stage, [])
            later = list(stages.from_stage(stage + 1))
            straight = without_identities(stages.straight.get(stage, []), scope, names)
            wanted = {*names_used(renamed([*cut, *later], names)), *counts.values()}
            wanted.update(names.get(name, name) for name in results)
            made = [name for node in straight for name in node.output if name in wanted]
            steps += self._parts.run(straight, made, scope, graph.role)
            for place, original in enumerate(cut):
                (node,) = renamed([original], names)
                before = len(self._parts.imported)
                inner = self._branches(node, graph, scope) if node.op_type == "If" else []
                if len(inner) == 2 and inner[0].values != inner[1].values:
                    self._parts.forget(before)
                    rest = renamed([*cut[place + 1 :], *later], names)
                    left = [names.get(name, name) for name in results]
                    return self._to_the_end(
                        node, replace(graph, nodes=rest, results=left), scope, steps
                    )
                if inner:
                    names |= self._chosen(node, inner, scope, steps)
                else:
                    steps.append(self._repeated(node, graph, scope))
                for output, count in counts.items():
                    if output in node.output:
                        scope[output] = replace(scope[output], counts=((0, count),))
        return self._finished(steps, [names.get(name, name) for name in results], scope)

    def _written(self, node: onnx.NodeProto, counts: dict[str, str]) -> Iterator[onnx.NodeProto]:
        """A node; a loop as one of states alone, where it is not known how often it runs."""
        if node.op_type != "Loop" or is_loop_of_known_rounds(node, self._constants, _MOST_UNROLLED):
            yield node
            return
        rounds = as_rounds(node, self._fresh("loop"), self._constants)
        yield from rounds.before
        yield rounds.node
        yield from rounds.after
        counts |= rounds.counts

    def _branches(
        self, node: onnx.NodeProto, graph: Graph, scope: Scope, rest: Graph | None = None
    ) -> list[Cut]:
        """What either branch is, with all that comes behind it if that belongs to it; the one
        that is taken, where that is known."""
        known = self._constants.array(node.input[0])
        taken = [True, False] if known is None else [bool(known.any())]
        found: list[Cut] = []
        impossible: list[tuple[int, str]] = []
        for yes in taken:
            role = _ROLES[0 if yes else 1]
            body = body_under(graph_attribute(node, f"{role}_branch"), self._fresh(role))
            for tensor in body.initializer:
                self._constants.tensors[tensor.name] = tensor
            nodes, results, outermost = list(body.node), body_results(body), False
            if rest is not None:
                names = dict(zip(node.output, results, strict=False))
                nodes += copies_under(renamed(rest.nodes, names), self._fresh("rest"), names)
                results = [names.get(name, name) for name in rest.results]
                outermost = graph.outermost
            inner = Graph(nodes, results, role, outermost, graph.depth + 1)
            try:
                found.append(self.cut(inner, dict(scope)))
            except ImpossibleError as err:
                if impossible or not (len(taken) > 1):
                    raise
                impossible.append((len(found), str(err)))
        for place, reason in impossible:
            (possible,) = found
            found.insert(place, self._failing(possible, _ROLES[place], node_label(node), reason))
        return found

    def _failing(self, other: Cut, role: str, label: str, reason: str) -> Cut:
        """Stands for a branch that shapes rule out: it gives nothing but an error."""
        why = f"the {role} branch of {label} (If) does not take inputs of these shapes"
        self.remarks.append(f"{why}, and a call that takes it is an error: {reason}")
        zeros = [np.zeros(value.shape, value.dtype) for value in other.values]
        results = [self._constants.add(self._fresh("nothing"), array) for array in zeros]
        values = [replace(value, counts=()) for value in other.values]
        return Cut(Region((Fail(why),), tuple(results)), values)

    def _chosen(
        self,
        node: onnx.NodeProto,
        cuts: Sequence[Cut],
        scope: Scope,
        steps: list[Step],
    ) -> dict[str, str]:
        """Add the step of an If; new names for what is there under others."""
        if len(cuts) == 1:
            (cut,) = cuts
            steps += cut.region.steps
            scope.update(zip(cut.region.results, cut.values, strict=True))
            return dict(zip(node.output, cut.region.results, strict=False))
        outputs = [name or self._fresh("unused") for name in node.output]
        steps.append(Choose(node.input[0], cuts[0].region, cuts[1].region, tuple(outputs)))
        scope.update(zip(outputs, cuts[0].values, strict=True))
        return {}

    def _to_the_end(
        self, node: onnx.NodeProto, rest: Graph, scope: Scope, steps: list[Step]
    ) -> Cut:
        """An If with all that comes behind it in both branches: what either gives is of other
        shapes than what the other one does."""
        label = f"{node_label(node)} (If)"
        then, otherwise = self._branches(node, rest, scope, rest)
        if then.values != otherwise.values:
            fitting = fit_together(then, otherwise)
            if not rest.outermost or not fitting:
                raise ModelError(
                    f"{label} cannot be imported: its branches give tensors of other "
                    + ("shapes, inside another body" if fitting else "ranks or types"),
                    value=label,
                )
        outputs = [self._fresh("result") for _ in rest.results]
        larger = larger_of(then, otherwise, self._fresh)
        first, second = (
            enlarged(cut, larger, self._parts, self._constants, self._fresh)
            for cut in (then, otherwise)
        )
        steps.append(Choose(node.input[0], first, second, (*outputs, *larger.counts.values())))
        for value, output in zip(larger.values, outputs, strict=True):
            scope[output] = value
        return self._finished(steps, outputs, scope)

    def _repeated(self, node: onnx.NodeProto, graph: Graph, scope: Scope) -> Repeat:
        """The step of a loop."""
        found = self._rounds(node, graph, scope)
        rows = found.values[len(node.input) :]
        for value in found.values:
            if value.counts:
                raise ModelError(
                    f"{node_label(node)} (Loop) cannot be imported: the shape of what a round "
                    "gives depends on data",
                    value=node_label(node),
                )
        if rows:
            self._parts.forget(found.before)
            node = with_rows(node, self._fresh("rows"), self._constants, rows)
            found = self._rounds(node, graph, scope)
        scope.update(zip(node.output, found.values, strict=True))
        return Repeat(tuple(node.input), found.states, found.region, tuple(node.output))

    def _rounds(self, node: onnx.NodeProto, graph: Graph, scope: Scope) -> _Rounds:
        before = len(self._parts.imported)
        body = body_under(graph_attribute(node, "body"), self._fresh("body"))
        states = [value.name for value in body.input]
        initial = [self._value(name, scope) for name in node.input]
        inner = {**scope, **dict(zip(states, initial, strict=True))}
        nodes = Graph(list(body.node), body_results(body), "body", depth=graph.depth + 1)
        cut = self.cut(nodes, inner)
        for old, new, name in zip(initial, cut.values, body.input, strict=False):
            if old != new:
                label = f"{node_label(node)} (Loop)"
                raise ModelError(
                    f"{label} cannot be imported: '{name.name}' is {old.dtype}{list(old.shape)} "
                    f"before a round and {new.dtype}{list(new.shape)} after it",
                    value=label,
                )
        return _Rounds(cut.region, cut.values, tuple(states), before)

    def _fresh(self, what: str) -> str:
        self._count += 1
        return f"{what}{self._count}."


@dataclass(frozen=True)
class _Rounds(Cut):
    """A loop's body, and how many parts there were before."""

    states: tuple[str, ...]
    before: int
