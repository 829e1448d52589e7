"""Bodies written out in the places of the operators that have them.

A choice that is known, or whose branches are cheap, becomes a straight line: both branches and a
selection. So does a loop whose rounds are known and few, a scan of few steps, and a map, which is
one operator over all rows at once. What is left has a mark, and is cut.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.associative_scan import generic_associative_scan
from torch.fx.experimental.proxy_tensor import make_fx

from collage.backends.contract.errors import ModelError
from collage.importers.torch.courses.attending import attended
from collage.importers.torch.courses.guessing import Known, rounds_of
from collage.importers.torch.courses.looping import Loop, as_loop, scanned
from collage.importers.torch.courses.symbols import as_tensors, is_check, reads_numbers
from collage.importers.torch.courses.writer import Writer, aten

_MOST_UNROLLED = 2000
"""Nodes of a loop that is written out round by round."""

_DEEPEST = 16
"""Levels of nested bodies."""

_DEAR = frozenset(
    [
        *("_grouped_mm", "addbmm", "addmm", "addmv", "baddbmm", "bilinear", "bmm", "conv1d"),
        *("conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        *("convolution", "dot", "einsum", "gru", "linalg_multi_dot", "linear", "lstm", "matmul"),
        *("mm", "mv", "rnn_relu", "rnn_tanh", "scaled_dot_product_attention", "tensordot"),
        "flex_attention",
    ]
)
"""Operators that are not computed for nothing."""


def choice(condition: Any, operands: Any) -> Any:
    """Marks one of two graphs, ``graphs`` of its node's ``meta``; never called.

    Parameters
    ----------
    condition, operands : object
        What decides, and what the graphs take.

    Returns
    -------
    tuple
        What the one that ran gave.

    Raises
    ------
    NotImplementedError
        Always.
    """
    raise NotImplementedError


def rounds(states: Any, others: Any) -> Any:
    """Marks a loop over ``graph`` of its node's ``meta``, whose first state says whether there is
    another round; never called.

    Parameters
    ----------
    states, others : object
        What rounds change, and what else they read.

    Returns
    -------
    tuple
        The states after the last round.

    Raises
    ------
    NotImplementedError
        Always.
    """
    raise NotImplementedError


def is_cut(node: fx.Node) -> bool:
    """Whether a graph has to be taken apart there."""
    return node.target in (choice, rounds)


class Written:
    """A graph and all that is in it, written anew.

    Parameters
    ----------
    writer : Writer
        Gets the nodes.
    known : Known
        What of them is known.
    depth : int
        How many bodies this one is in.

    Raises
    ------
    ModelError
        When these are too many.
    """

    def __init__(self, writer: Writer, known: Known, depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise ModelError(
                f"control flow is nested deeper than {_DEEPEST} levels", value=_DEEPEST
            )
        self._writer = writer
        self._known = known
        self._depth = depth

    def inline(self, source: fx.GraphModule, given: Sequence[Any]) -> list[Any]:
        """Write a graph for these arguments.

        Parameters
        ----------
        source : fx.GraphModule
            With its bodies.
        given : sequence
            A node for each of its inputs.

        Returns
        -------
        list
            What stands for its results.

        Raises
        ------
        RefusedError, ModelError
            For what cannot be written.
        """
        env: dict[fx.Node, Any] = {}
        left = iter(given)
        for node in source.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(left)
            elif node.op == "get_attr":
                env[node] = self._attribute(source, str(node.target))
            elif node.op == "output":
                found = node.args[0]
                results = found if isinstance(found, list | tuple) else [found]
                return [env[one] if isinstance(one, fx.Node) else one for one in results]
            elif not is_check(node):
                env[node] = self._node(node, env)
        raise AssertionError("graphs have an output")

    def _attribute(self, source: fx.GraphModule, target: str) -> Any:
        found: Any = source
        for name in target.split("."):
            found = getattr(found, name)
        if isinstance(found, torch.Tensor):
            raise ModelError(f"a body of the program holds the tensor '{target}'", value=target)
        return found

    def _node(self, node: fx.Node, env: dict[fx.Node, Any]) -> Any:
        if node.target is operator.getitem and isinstance(env[node.args[0]], list | tuple):
            return env[node.args[0]][node.args[1]]
        if has_bodies(node):
            args = [_filled(one, env) for one in node.args]
            return _OPERATORS[node.target.__name__](self, node, *args)
        if reads_numbers(node):
            return as_tensors(self._writer, node, env)
        return self._writer.copy(node, env)

    def _choose(self, node: fx.Node, condition: Any, *rest: Any) -> Sequence[Any]:
        """One of two bodies."""
        then, otherwise, operands = rest
        known = self._known.value(condition)
        if known is not None:
            return self.inline(then if bool(known) else otherwise, operands)
        if not any(map(_is_dear, (then, otherwise))):
            pairs = zip(self.inline(then, operands), self.inline(otherwise, operands), strict=True)
            asked = self._writer.emit(aten.reshape.default, condition, [])
            return [self._selected(asked, *pair) for pair in pairs]
        given = self._as_nodes(operands)
        graphs = [self._body(body, given) for body in (then, otherwise)]
        found = self._marked(choice, (condition, tuple(given)), _results(then))
        found[0].meta["graphs"] = graphs
        return found[1]

    def _selected(self, asked: fx.Node, one: Any, other: Any) -> Any:
        return one if one is other else self._writer.emit(aten.where.self, asked, one, other)

    def _repeat(self, node: fx.Node, *args: Any) -> Sequence[Any]:
        """A loop that goes on as long as its condition holds."""
        condition, body, initial, others = args
        most = _MOST_UNROLLED // max(1, len(body.graph.nodes))
        before, read = ([self._known.value(one) for one in each] for each in (initial, others))
        count = rounds_of(condition.graph, body.graph, before, read, most)
        states = self._as_nodes(initial)
        if count is not None:
            for _ in range(count):
                states = self._as_nodes(self.inline(body, [*states, *others]))
            return states
        (going,) = self.inline(condition, [*states, *others])
        going = self._as_nodes([going])[0]
        states = [self._writer.emit(aten.reshape.default, going, []), *states]
        return self._looping(as_loop(condition, body, len(initial)), states, others)[1:]

    def _scan(self, node: fx.Node, *args: Any) -> Sequence[Any]:
        """A loop over the rows of some tensors."""
        body, initial, rows, others = args
        length = int(rows[0].meta["val"].shape[0])
        states, gathered = list(initial), []
        if length * len(body.graph.nodes) <= _MOST_UNROLLED:
            for step in range(length):
                taken = [self._writer.emit(aten.select.int, one, 0, step) for one in rows]
                found = self._as_nodes(self.inline(body, [*states, *taken, *others]))
                states = found[: len(initial)]
                gathered.append(found[len(initial) :])
            columns = [
                self._writer.emit(aten.stack.default, list(column))
                for column in zip(*gathered, strict=True)
            ]
            return [*states, *columns]
        likes = [self._writer.fakes.like(one) for one in _results(body)[len(initial) :]]
        empty = [
            self._writer.emit(aten.full.default, [length, *one.shape], 0, dtype=one.dtype)
            for one in likes
        ]
        begin = [self._writer.constant(True), self._writer.constant(0)]
        loop = scanned(body, len(initial), len(rows), length)
        return self._looping(loop, [*begin, *states, *empty], [*rows, *others])[2:]

    def _over_rows(self, node: fx.Node, *args: Any) -> Sequence[Any]:
        """A body for every row, all at once where PyTorch knows how."""
        body, rows, others = args
        if any(isinstance(one.target, torch._ops.HigherOrderOperator) for one in body.graph.nodes):
            return self._scan(node, body, [], rows, others)
        axes = (*(0 for _ in rows), *(None for _ in others))
        return self._traced(torch.vmap(body, in_dims=axes), [*rows, *others])

    def _combine(self, node: fx.Node, *args: Any) -> Sequence[Any]:
        """Prefixes of rows under an operator, in steps that grow with the logarithm."""
        body, rows, others = args

        def whole(*given: Any) -> Any:
            left = list(given[: len(rows)])
            return generic_associative_scan(body, left, 0, tuple(given[len(rows) :]))

        return self._traced(whole, [*rows, *others])

    def _attend(self, node: fx.Node, *args: Any) -> Sequence[Any]:
        return attended(self._writer, self._traced, node, args)

    def _traced(self, function: Callable[..., Any], given: Sequence[Any]) -> Sequence[Any]:
        fakes = [self._writer.fakes.like(_value(one)) for one in given]
        return self.inline(make_fx(function)(*fakes), [self._writer.in_order(one) for one in given])

    def _looping(self, loop: Loop, states: Sequence[Any], others: Sequence[Any]) -> Sequence[Any]:
        given = self._as_nodes([*states, *others])
        graph = self._subgraph(given, lambda inner, nodes: loop(inner._writer, inner, nodes))
        likes = [one.meta["val"] for one in given[: len(states)]]
        args = (tuple(given[: len(states)]), tuple(given[len(states) :]))
        found = self._marked(rounds, args, likes)
        found[0].meta["graph"] = graph
        return found[1]

    def _body(self, body: fx.GraphModule, given: Sequence[fx.Node]) -> fx.Graph:
        return self._subgraph(given, lambda inner, nodes: inner.inline(body, nodes))

    def _subgraph(
        self, given: Sequence[fx.Node], write: Callable[[Written, Sequence[fx.Node]], Sequence[Any]]
    ) -> fx.Graph:
        """A graph of its own; what is known of its inputs is not, where they are states."""
        writer = Writer(self._writer.fakes)
        nodes = [writer.take(f"x{place}", one.meta["val"]) for place, one in enumerate(given)]
        inner = Written(writer, Known({}), self._depth + 1)
        results = inner._as_nodes(write(inner, nodes))
        writer.graph.output(tuple(results))
        return writer.graph

    def _as_nodes(self, values: Sequence[Any]) -> list[fx.Node]:
        """Plain numbers as tensors."""
        return [x if isinstance(x, fx.Node) else self._writer.constant(x) for x in values]

    def _marked(
        self, mark: Callable[..., Any], args: Sequence[Any], likes: Sequence[Any]
    ) -> tuple[fx.Node, list[fx.Node]]:
        node = self._writer.marked(mark, args, tuple(likes))
        fields = []
        for place, like in enumerate(node.meta["val"]):
            field = self._writer.graph.call_function(operator.getitem, (node, place))
            field.meta["val"] = like
            fields.append(field)
        return node, fields


def has_bodies(node: fx.Node) -> bool:
    """Whether an operator has bodies that are written out, or cut."""
    is_higher = isinstance(node.target, torch._ops.HigherOrderOperator)
    return is_higher and node.target.__name__ in _OPERATORS


def _filled(argument: Any, env: dict[fx.Node, Any]) -> Any:
    if isinstance(argument, fx.Node):
        return env[argument]
    return (
        [_filled(one, env) for one in argument] if isinstance(argument, list | tuple) else argument
    )


def _value(one: Any) -> Any:
    return one.meta["val"] if isinstance(one, fx.Node) else one


def _results(body: fx.GraphModule) -> list[Any]:
    """What a body gives, as PyTorch knows it."""
    (output,) = body.graph.find_nodes(op="output")
    return [_value(one) for one in output.args[0]]


def _is_dear(body: fx.GraphModule) -> bool:
    """Whether a body has what is not computed for nothing: products, and loops."""
    return any(
        _packet(node) in _DEAR or _packet(node) in ("while_loop", "scan")
        for graph in _graphs(body)
        for node in graph.nodes
    )


def _packet(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", "")).split(".")[0]


def _graphs(body: fx.GraphModule) -> Iterator[fx.Graph]:
    for module in body.modules():
        if isinstance(module, fx.GraphModule):
            yield module.graph


_OPERATORS: dict[str, Callable[..., Sequence[Any]]] = {
    "cond": Written._choose,
    "while_loop": Written._repeat,
    "scan": Written._scan,
    "map_impl": Written._over_rows,
    "associative_scan": Written._combine,
    "flex_attention": Written._attend,
}
"""By the name of PyTorch's operator that has bodies."""
