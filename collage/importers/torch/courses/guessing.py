"""What is known before a program runs: values that no input decides, and how often a loop runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

_MOST_ELEMENTS = 1024
"""Larger tensors decide no course, and computing them here would cost time."""

_UNKNOWN = object()


class Known:
    """Values of a graph that follow from its constants.

    Parameters
    ----------
    given : mapping of fx.Node to object
        Inputs of the graph that are known.
    """

    def __init__(self, given: Mapping[fx.Node, Any]) -> None:
        self._values: dict[fx.Node, Any] = dict(given)

    def learn(self, node: fx.Node, value: Any) -> None:
        """Know a value from now on.

        Parameters
        ----------
        node : fx.Node
            Whose it is.
        value : object
            What it is.
        """
        self._values[node] = value

    def value(self, argument: Any) -> Any:
        """What a node or a plain value is; None where an input decides it."""
        found = self._found(argument)
        return None if found is _UNKNOWN else found

    def _found(self, argument: Any) -> Any:
        if not isinstance(argument, fx.Node):
            return argument
        waiting = [argument]
        while waiting:
            node = waiting[-1]
            if node in self._values:
                waiting.pop()
                continue
            sources = node.all_input_nodes if _is_small(node) else []
            more = [source for source in sources if source not in self._values]
            if more and not any(self._values.get(one) is _UNKNOWN for one in sources):
                waiting += more
                continue
            self._values[waiting.pop()] = self._computed(node, sources)
        return self._values[argument]

    def _computed(self, node: fx.Node, sources: Sequence[fx.Node]) -> Any:
        if not _is_small(node) or any(self._values.get(one) is _UNKNOWN for one in sources):
            return _UNKNOWN
        args, kwargs = pytree.tree_map_only(
            fx.Node, self._values.__getitem__, (node.args, node.kwargs)
        )
        # On the processor, wherever the program is to run.
        kwargs = {key: value for key, value in kwargs.items() if key != "device"}
        try:
            return node.target(*args, **kwargs)
        except Exception:  # noqa: BLE001 - it is not known then; who imports it says why
            return _UNKNOWN


def _is_small(node: fx.Node) -> bool:
    """Whether an operator can be asked for its value here."""
    if node.op != "call_function" or isinstance(node.target, torch._ops.HigherOrderOperator):
        return False
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return False
    wanted = node.meta.get("val")
    tensors = wanted if isinstance(wanted, list | tuple) else [wanted]
    return all(
        not isinstance(one, torch.Tensor)
        or (all(isinstance(n, int) for n in one.shape) and one.numel() <= _MOST_ELEMENTS)
        for one in tensors
    )


def rounds_of(
    condition: fx.Graph, body: fx.Graph, initial: Sequence[Any], others: Sequence[Any], most: int
) -> int | None:
    """How often a loop runs, where what is known decides it.

    Parameters
    ----------
    condition, body : fx.Graph
        What it asks before a round, and what a round does.
    initial, others : sequence
        The values of states before the first round, and of what else is read; None for what is not
        known.
    most : int
        Rounds that are tried.

    Returns
    -------
    int or None
        None where it is not known, or more than that.
    """
    asked, made = _takes(condition), _takes(body)
    given = {place for place, value in enumerate([*initial, *others]) if value is not None}
    (going,) = _gives(condition)
    results = _gives(body)
    kept = {place for place in range(len(initial)) if place in given}
    while True:
        there = kept | {place for place in given if place >= len(initial)}
        known = {made[place] for place in there}
        left = {place for place in kept if _needs(results[place], made) <= known}
        if left == kept:
            break
        kept = left
    if not _needs(going, asked) <= {asked[place] for place in there}:
        return None
    states = {place: [*initial, *others][place] for place in there}
    for count in range(most + 1):
        again = Known({asked[place]: value for place, value in states.items()}).value(going)
        if again is None:
            return None
        if not bool(again):
            return count
        round_ = Known({made[place]: value for place, value in states.items()})
        found = {place: round_.value(results[place]) for place in kept}
        if any(value is None for value in found.values()):
            return None
        states |= found
    return None


def _takes(graph: fx.Graph) -> list[fx.Node]:
    return list(graph.find_nodes(op="placeholder"))


def _gives(graph: fx.Graph) -> list[Any]:
    (output,) = graph.find_nodes(op="output")
    given = output.args[0]
    return list(given) if isinstance(given, list | tuple) else [given]


def _needs(result: Any, inputs: Sequence[fx.Node]) -> set[fx.Node]:
    """The inputs of a graph that a result follows from."""
    if not isinstance(result, fx.Node):
        return set()
    waiting, seen = [result], {result}
    while waiting:
        for source in waiting.pop().all_input_nodes:
            if source not in seen:
                seen.add(source)
                waiting.append(source)
    return seen & set(inputs)
