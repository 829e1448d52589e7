"""Which backend could take what of a model, and why not the rest: known before anything is built.

The same rules, patterns and predicates find this that a search begins with, so that what is refused
here is refused there, in the same words.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import or_
from typing import Any

from tvm import ir

from collage.cost.workload.describe import call_flops
from collage.pipeline.imported import import_functions
from collage.pipeline.session import open_session
from collage.pipeline.shapes.buckets import Given, buckets_of
from collage.report.explain import refusals
from collage.search.dataflow import DataflowGraph
from collage.search.rules import Found, default_rules
from collage.search.rules.host import is_host
from collage.targets import TargetLike


@dataclass(frozen=True)
class OperatorGroup:
    """Operators of one type that a backend treats alike.

    Attributes
    ----------
    op : str
        The type, for example ``nn.conv2d``.
    count : int
        How many of them the model has.
    flops : int
        Floating-point operations of all of them in one call of the model.
    names : tuple of str
        What the model calls them.
    reasons : tuple of str
        Why they are refused, each with the pattern's name; empty where they are taken.

    Examples
    --------
    >>> OperatorGroup("nn.conv2d", 2, 2000, ("stem", "head")).reasons
    ()
    """

    op: str
    count: int
    flops: int
    names: tuple[str, ...]
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class BackendCoverage:
    """What one backend takes of a model.

    Attributes
    ----------
    backend : str
    operators : int
        How many it takes.
    flops_share : float or None
        Of the model's floating-point operations; None where it has none.
    taken, refused : tuple of OperatorGroup
        Those with the most operations first.

    Examples
    --------
    >>> BackendCoverage("onednn", 0, 0.0, (), ()).operators
    0
    """

    backend: str
    operators: int
    flops_share: float | None
    taken: tuple[OperatorGroup, ...]
    refused: tuple[OperatorGroup, ...]


@dataclass(frozen=True)
class Coverage:
    """What each backend takes of a model, and what it refuses and why.

    Attributes
    ----------
    model : str
    operators : int
        All that compute something, after normalization: tuples and shapes are not counted.
    flops : int
        Floating-point operations of one call, a multiply-add as two.
    backends : tuple of BackendCoverage
        TVM first, which takes whatever can be computed at all.

    Examples
    --------
    >>> Coverage("net", 0, 0, ()).as_dict()["backends"]
    []
    """

    model: str
    operators: int
    flops: int
    backends: tuple[BackendCoverage, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        found = asdict(self)
        return {**found, "backends": list(found["backends"])}

    def of(self, backend: str) -> BackendCoverage:
        """One backend's.

        Raises
        ------
        KeyError
            When it was none of the targets; names those that look like it.
        """
        by_name = {one.backend: one for one in self.backends}
        if backend not in by_name:
            near = difflib.get_close_matches(backend, by_name) or list(by_name)
            raise KeyError(f"'{backend}' was none of the targets; there is {', '.join(near)}")
        return by_name[backend]


def coverage(
    model: Any,
    targets: Sequence[TargetLike] | None = None,
    *,
    shapes: Given | None = None,
    allow_code: bool = False,
) -> Coverage:
    """What each backend takes of a model, and what it refuses and why, without building anything.

    Parameters
    ----------
    model, targets, shapes, allow_code
        As :func:`collage.optimize` takes them.

    Returns
    -------
    Coverage
        An operator is taken where some pattern of the backend matches and its predicate says yes,
        alone or with others. A library may still refuse what it is given to compile; a search finds
        that out.

    Raises
    ------
    UserError
        Something given is wrong; its subclasses say what.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.testing import graph
    >>> mod = graph([(4, 8)], lambda emit, x: op.cumsum(emit(op.nn.relu(x)), 1))
    >>> found = coverage(mod, ["llvm", "onednn"])
    >>> [(one.backend, one.operators) for one in found.backends]
    [('tvm', 2), ('onednn', 1)]
    >>> [(group.op, group.reasons) for group in found.of("onednn").refused]
    [('cumsum', ('no pattern matches',))]
    """
    session = open_session(targets)
    # Of several shapes the largest: patterns hardly ever tell them apart.
    largest = buckets_of(shapes or {}).buckets[-1].shapes
    functions = import_functions(
        model, session.targets.device, shapes=largest, allow_code=allow_code
    )
    operators = [
        _Operator(function.graph, index)
        for function in functions
        for index in range(len(function.graph))
        if not is_host(function.graph, index)
    ]
    rule = default_rules(session.targets)
    found = {function.graph: rule.find(function.graph) for function in functions}
    backends = tuple(_of_backend(name, operators, found) for name in session.targets.names)
    flops = sum(operator.flops for operator in operators)
    return Coverage(functions[0].name, len(operators), flops, backends)


@dataclass(frozen=True, eq=False)
class _Operator:
    graph: DataflowGraph
    index: int

    @property
    def op(self) -> str:
        return self.graph.op_name(self.index)

    @property
    def name(self) -> str:
        return str(self.graph.bindings[self.index].var.name)

    @property
    def flops(self) -> int:
        value = self.graph.bindings[self.index].value
        computes = isinstance(value, ir.Call) and isinstance(value.op, ir.Op)
        return call_flops(value) if computes else 0


def _of_backend(
    name: str, operators: Sequence[_Operator], found: Mapping[DataflowGraph, Found]
) -> BackendCoverage:
    masks: dict[DataflowGraph, int] = {}
    for graph, of_graph in found.items():
        theirs = (c.nodes for c in of_graph.candidates if c.backend == name and not c.inline)
        masks[graph] = reduce(or_, theirs, 0)
    taken = [one for one in operators if masks[one.graph] >> one.index & 1]
    refused = {
        one: refusals(found[one.graph].rejections, one.index, name)
        for one in operators
        if not masks[one.graph] >> one.index & 1
    }
    total = sum(operator.flops for operator in operators)
    return BackendCoverage(
        name,
        len(taken),
        sum(operator.flops for operator in taken) / total if total else None,
        _groups(dict.fromkeys(taken, ())),
        _groups(refused),
    )


def _groups(reasons: Mapping[_Operator, tuple[str, ...]]) -> tuple[OperatorGroup, ...]:
    alike: dict[tuple[str, tuple[str, ...]], list[_Operator]] = defaultdict(list)
    for operator, why in reasons.items():
        alike[operator.op, why].append(operator)
    groups = [
        OperatorGroup(
            *(op, len(members), sum(one.flops for one in members)),
            *(tuple(one.name for one in members), why),
        )
        for (op, why), members in alike.items()
    ]
    return tuple(sorted(groups, key=lambda group: (-group.flops, -group.count, group.op)))
