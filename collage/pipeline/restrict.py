"""What a user pins and bans, by operator type or by node name, becomes restrictions of the search.

Both are written ``PATTERN: BACKEND``. A pattern is a shell's (``*``, ``?``, ``[...]``) and is held
against operators' types (``nn.conv2d``, as ``collage coverage`` lists them) and against what the
model calls its nodes; in names every character but letters and digits counts as the same, so that
``backbone.*`` finds ``/backbone/conv1/Conv``. Brackets may be a name's own too: ``layers[0]/*``
finds what is in ``layers[0]`` and in ``layers0``.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from collage.backends.contract import TargetSet
from collage.backends.contract.errors import RestrictionError, UnmatchedError
from collage.report.explain import refusals
from collage.search.dataflow import DataflowGraph, bits
from collage.search.restrictions import Restrictions
from collage.search.rules import Found, RestrictedRule, default_rules
from collage.search.rules.host import RESHAPES, is_host

Wishes = Mapping[str, str | Sequence[str]]
"""By pattern, a backend or several of them."""

_NAMED = 5


@dataclass(frozen=True)
class Restricted:
    """What was pinned and banned, understood.

    Attributes
    ----------
    restrictions : Restrictions
        For the search.
    remarks : tuple of str
        For the report: one a wish, with how many operators it holds for.

    Examples
    --------
    >>> bool(Restricted(Restrictions(), ()).restrictions)
    False
    """

    restrictions: Restrictions
    remarks: tuple[str, ...]


def restrict(
    graph: DataflowGraph,
    targets: TargetSet,
    pin: Wishes | None,
    ban: Wishes | None,
    graphs: Sequence[DataflowGraph] = (),
) -> Restricted:
    """Understand what is pinned and banned, and see that it can be had.

    Parameters
    ----------
    graph : DataflowGraph
        Of the normalized module.
    targets : TargetSet
        Whose names may be used.
    pin : mapping, optional
        Patterns and who alone may run what they match: a backend, or one of several.
    ban : mapping, optional
        Patterns and who may not run what they match.
    graphs : sequence of DataflowGraph, optional
        Of all functions of the model: it is enough when a pattern matches in one of them.

    Returns
    -------
    Restricted
        By operators' indices, and remarks for the report.

    Raises
    ------
    UnmatchedError
        When a pattern matches nothing.
    RestrictionError
        When a backend is none of the targets, or nobody can run an
        operator who may. Operators that only change a shape may always stay in ``main``, where they
        cost nothing.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> mod = graph([(4, 8)], lambda emit, x: op.exp(emit(op.nn.relu(x))))
    >>> dataflow = DataflowGraph.from_function(mod["main"])
    >>> targets = resolve_targets(["llvm", "onednn"])
    >>> found = restrict(dataflow, targets, {"nn.relu": "onednn"}, {"exp": "onednn"})
    >>> found.remarks
    ('pinned nn.relu to onednn (1 operator)', 'banned exp from onednn (1 operator)')
    >>> restrict(dataflow, targets, {"nn.rely": "onednn"}, None)
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.UnmatchedError: pin 'nn.rely' matches no operator ...
    """
    closed: dict[str, dict[int, str]] = defaultdict(dict)
    remarks = []
    for verb, wishes in (("pin", pin or {}), ("ban", ban or {})):
        for pattern, backends in wishes.items():
            chosen = _backends(verb, pattern, backends, targets)
            nodes = _matching(graph, pattern)
            if not nodes and not any(_matching(other, pattern) for other in graphs):
                raise _nothing(graphs or (graph,), verb, pattern)
            text = ", ".join(chosen)
            if verb == "pin":
                shut = tuple(name for name in targets.names if name not in chosen)
                reason, remark = f"pinned to {text} by '{pattern}'", f"pinned {pattern} to {text}"
            else:
                shut = chosen
                reason, remark = f"banned by '{pattern}'", f"banned {pattern} from {text}"
            for name in shut:
                for index in nodes:
                    closed[name].setdefault(index, reason)
            remarks.append(f"{remark} ({len(nodes)} operator{'s' * (len(nodes) != 1)})")
    native = closed.get(targets.native.name, {})
    for index in [index for index in native if _is_free(graph, index)]:
        del native[index]
    restrictions = Restrictions(closed)
    if restrictions:
        _require_possible(graph, targets, restrictions)
    return Restricted(restrictions, tuple(remarks))


def _backends(
    verb: str, pattern: str, given: str | Sequence[str], targets: TargetSet
) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if name not in targets.names:
            near = difflib.get_close_matches(name, targets.names) or targets.names
            raise RestrictionError(
                f"{verb} '{pattern}': '{name}' is none of the targets; there is {', '.join(near)}",
                value=name,
            )
    if not names:
        raise RestrictionError(f"{verb} '{pattern}' names no backend", value=pattern)
    return names


def _matching(graph: DataflowGraph, pattern: str) -> list[int]:
    """The computing operators that a pattern matches, by type or by name."""
    wanted = {_classes(pattern), _plain(pattern)}
    # A name may end in a separator of its own, and a pattern in one before its star.
    wanted |= {text.strip("_") for text in wanted}
    return [
        index
        for index, op, name in _operators(graph)
        if fnmatchcase(op, pattern)
        or any(fnmatchcase(text, one) for text in (name, name.strip("_")) for one in wanted)
    ]


def _operators(graph: DataflowGraph) -> Iterator[tuple[int, str, str]]:
    """All that compute something: index, type, name."""
    for index in range(len(graph)):
        if not is_host(graph, index):
            name = re.sub("[^0-9A-Za-z]", "_", str(graph.bindings[index].var.name))
            yield index, graph.op_name(index), name


def _nothing(graphs: Sequence[DataflowGraph], verb: str, pattern: str) -> UnmatchedError:
    """The error for a pattern that matches nothing, with what comes near."""
    operators = [found for graph in graphs for found in _operators(graph)]
    types = list(dict.fromkeys(op for _, op, _ in operators))
    near = difflib.get_close_matches(pattern, types, _NAMED)
    names = _prefixes([name.strip("_") for _, _, name in operators])
    near += difflib.get_close_matches(_plain(pattern).strip("*_"), names, _NAMED)
    hint = f"did you mean {', '.join(near)}" if near else f"there is {', '.join(types)}"
    return UnmatchedError(f"{verb} '{pattern}' matches no operator; {hint}", value=pattern)


def _plain(pattern: str) -> str:
    """A pattern in which all separators are the same, brackets among them."""
    return re.sub("[^0-9A-Za-z*?]", "_", pattern)


def _classes(pattern: str) -> str:
    """A pattern in which all separators are the same, but brackets are classes of characters."""
    parts = re.split(r"(\[[^\]]*\])", pattern)
    parts[::2] = map(_plain, parts[::2])
    parts[1::2] = [f"[{re.sub('[^0-9A-Za-z!-]', '_', part[1:-1])}]" for part in parts[1::2]]
    return "".join(parts)


def _prefixes(names: Sequence[str]) -> list[str]:
    """All that names begin with, up to some separator: modules, and the names themselves."""
    parts = (name.split("_") for name in names)
    return list(dict.fromkeys("_".join(p[: end + 1]) for p in parts for end in range(len(p))))


def _is_free(graph: DataflowGraph, index: int) -> bool:
    return graph.op_name(index) in RESHAPES


def _require_possible(graph: DataflowGraph, targets: TargetSet, restrictions: Restrictions) -> None:
    """See that somebody who may can run each operator."""
    forced = restrictions.closed_to(targets.native.name)
    if not forced:
        return
    found = RestrictedRule(default_rules(targets), restrictions).find(graph)
    for candidate in found.candidates:
        forced &= ~candidate.nodes
    if not forced:
        return
    unfiltered = default_rules(targets).find(graph)
    alike: dict[str, list[str]] = defaultdict(list)
    for index in bits(forced):
        reasons = _reasons(graph, targets, restrictions, unfiltered, index)
        alike[f"{graph.op_name(index)} ({reasons})"].append(str(graph.bindings[index].var.name))
    listed = "; ".join(f"{what}: {_some(where)}" for what, where in alike.items())
    raise RestrictionError(
        f"nobody who may can run {listed}",
        value=tuple(graph.op_name(index) for index in bits(forced)),
    )


def _reasons(
    graph: DataflowGraph,
    targets: TargetSet,
    restrictions: Restrictions,
    found: Found,
    index: int,
) -> str:
    """Backend by backend, why an operator cannot go there."""
    lines = []
    for name in targets.names:
        closed = restrictions.closed.get(name, {})
        if index in closed:
            lines.append(f"{name}: {closed[index]}")
            continue
        blocked = [c for c in found.candidates if c.backend == name and c.nodes >> index & 1]
        why = refusals(found.rejections, index, name)
        if blocked:
            why = (f"takes it only together with what is {restrictions.reason(blocked[0])}",)
        lines.append(f"{name}: {'; '.join(why)}")
    return ", ".join(lines)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
