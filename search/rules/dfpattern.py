"""Matches of one backend pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import relax
from tvm.ir import Op
from tvm.relax.dpl import (
    AttrPattern,
    CallPattern,
    DataTypePattern,
    DFPattern,
    ExprPattern,
    OrPattern,
    ShapePattern,
    TupleGetItemPattern,
)

from collage.backends.contract import BackendTarget, Match, PatternTriple
from collage.backends.contract.errors import SearchError
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits
from collage.search.rules._base import Found, PartitionRule, Rejection
from collage.search.subgraph import SubGraph


class DFPatternRule(PartitionRule):
    """Every place where a pattern triple matches and its predicate says yes.

    The nodes of a match are the bindings that call patterns and tuple-item patterns matched, as in
    ``FuseOpsByPattern``. A match whose inner values are used outside is turned down, which TVM
    leaves to each predicate.

    Parameters
    ----------
    triple : PatternTriple
        Name, pattern and predicate.
    target : BackendTarget
        Runs what matches; current while the predicate is asked.

    Examples
    --------
    >>> from tvm.relax import dpl, op
    >>> from collage.backends.contract import always
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> exp = PatternTriple("mine.exp", dpl.is_op("relax.exp")(dpl.wildcard()), always)
    >>> mod = graph([(4, 8)], lambda emit, x: op.exp(emit(op.nn.relu(x))))
    >>> found = DFPatternRule(exp, onednn).find(DataflowGraph.from_function(mod["main"]))
    >>> [candidate.nodes for candidate in found.candidates]
    [2]
    """

    def __init__(self, triple: PatternTriple, target: BackendTarget) -> None:
        self.triple = triple
        self.target = target

    def find(self, graph: DataflowGraph) -> Found:
        """The matches, in the order of their roots.

        Raises
        ------
        SearchError
            When there is no function behind the graph.
        """
        values = _Values.of(graph)
        roots = values.roots(root_operators(self.triple.pattern))
        candidates, rejections = [], []

        def users(value: relax.Expr) -> list[relax.Expr]:
            index = values.index_of.get(value)
            readers = bits(graph.succs(index)) if index is not None else ()
            return [graph.bindings[reader].value for reader in readers]

        for root in roots:
            graph.step()
            binding = graph.bindings[root]
            matched = self.triple.pattern.extract_matched_expr(binding.value, values.by_var)
            if not matched:
                continue
            nodes = 1 << root
            for pattern, expr in matched.items():
                if isinstance(pattern, CallPattern | TupleGetItemPattern):
                    nodes |= 1 << values.index_of.get(expr, root)
            annotated = {
                name: matched[p] for name, p in self.triple.annotations.items() if p in matched
            }
            with self.target.scope:
                verdict = self.triple.predicate(Match(binding.value, annotated, users))
            reason = verdict.reason if not verdict else self._obstacle(graph, root, nodes)
            if verdict and not reason:
                candidates.append(Candidate(nodes, self.target, rule=self.triple.name))
            else:
                rejections.append(
                    Rejection(root, self.target.name, self.triple.name, reason or "refused")
                )
        return Found(tuple(candidates), tuple(rejections))

    @staticmethod
    def _obstacle(graph: DataflowGraph, root: int, nodes: int) -> str:
        sub = SubGraph(graph, nodes)
        for index in bits(sub.exit & ~(1 << root)):
            return (
                f"the value of its {graph.op_name(index)} (binding {index}) is used elsewhere too"
            )
        return "" if sub.is_convex else "it needs its own output through other operators"


@dataclass(frozen=True)
class _Values:
    """What every pattern asks of a graph; kept with it, for a backend has a hundred patterns."""

    by_var: Mapping[relax.Var, relax.Expr]
    index_of: Mapping[relax.Expr, int]
    calls: Sequence[int]
    by_operator: Mapping[str, Sequence[int]]

    @classmethod
    def of(cls, graph: DataflowGraph) -> _Values:
        known = graph.memo.get(("values", ""))
        if isinstance(known, cls):
            return known
        if graph.function is None:
            raise SearchError("patterns need a graph made from a function", value=None)
        index_of = {binding.value: index for index, binding in enumerate(graph.bindings)}
        # A pattern sees through names: of two names for one value only the first counts.
        calls = [
            root
            for root, binding in enumerate(graph.bindings)
            if isinstance(binding.value, relax.Call | relax.TupleGetItem)
        ]
        by_operator: dict[str, list[int]] = {}
        for root in calls:
            by_operator.setdefault(_operator(graph.bindings[root].value), []).append(root)
        made = cls(relax.analysis.get_var2val(graph.function), index_of, calls, by_operator)
        graph.memo["values", ""] = made
        return made

    def roots(self, operators: frozenset[str] | None) -> Sequence[int]:
        """The bindings with which a match may end."""
        if operators is None:
            return self.calls
        return sorted(root for name in operators for root in self.by_operator.get(name, ()))


def root_operators(pattern: DFPattern) -> frozenset[str] | None:
    """The operators that the last call of a match may be of; None where that may be any.

    Trying a pattern takes some 20 microseconds, and a backend has a hundred of them.

    Examples
    --------
    >>> from tvm.relax.dpl import is_op, wildcard
    >>> add = is_op("relax.add")(wildcard(), wildcard())
    >>> sorted(root_operators(add | is_op("relax.nn.relu")(add)))
    ['relax.add', 'relax.nn.relu']
    >>> root_operators(add | wildcard()) is None
    True
    """
    match pattern:
        case CallPattern():
            callee = pattern.op
            if not isinstance(callee, ExprPattern) or not isinstance(callee.expr, Op):
                return None
            return frozenset({str(callee.expr.name)})
        case OrPattern():
            left, right = root_operators(pattern.left), root_operators(pattern.right)
            return None if left is None or right is None else left | right
        case AttrPattern() | DataTypePattern() | ShapePattern():
            return root_operators(pattern.pattern)
    return None


def _operator(value: relax.Expr) -> str:
    is_call = isinstance(value, relax.Call) and isinstance(value.op, Op)
    return str(value.op.name) if is_call else ""
