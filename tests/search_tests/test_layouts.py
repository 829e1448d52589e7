"""Layouts are chosen exactly: against trying all partitionings with all layouts, one by one."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence

import networkx as nx
import numpy as np
import tvm
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from collage.cost.reference import evaluate
from collage.passes import lower, with_seams
from collage.search import Candidate, DataflowGraph, TableCosts, bits, search
from collage.search.layouts import LayoutGraph
from collage.search.partitioning import Partitioning, quotient
from collage.search.rules import LAYOUTS, Found, LayoutsRule, PartitionRule, default_rules, lifted
from collage.search.seam import Seam
from collage.search.strategies.without_costs import greedy, single_backend
from collage.targets import resolve_targets
from collage.testing import constant, graph

TARGETS = resolve_targets(["llvm", "onednn"])
SHAPE = (1, 8, 32, 32)

Sides = tuple[bool, bool]
"""Whether a candidate's inputs and its outputs have the other layout."""


def _network(seed: int, size: int, *, is_wide: bool = False) -> tvm.IRModule:
    """Convolutions, pools and sums of what was computed before; in wide ones of the first most."""
    rng = random.Random(seed)

    def build(emit, x):  # type: ignore[no-untyped-def]
        values = [emit(op.nn.conv2d(x, constant(8, 8, 3, 3), padding=1))]
        while len(values) < size:
            kind, one = rng.randrange(4), rng.choice(values[-2:])
            if is_wide and rng.random() < 0.8:
                one = values[0]
            if kind == 0:
                made = op.nn.conv2d(one, constant(8, 8, 1, 1))
            elif kind == 1:
                made = op.nn.max_pool2d(one, (3, 3), (1, 1), (1, 1))
            elif kind == 2:
                made = op.nn.softmax(one, axis=1)
            else:
                made = op.add(one, rng.choice(values))
            values.append(emit(made))
        if is_wide:
            return relax.Tuple(values[1:])
        return relax.Tuple([values[-1], values[-2]] if rng.random() < 0.3 else [values[-1]])

    return graph([SHAPE], build)


def _layouts(mod: tvm.IRModule) -> tuple[tvm.IRModule, LayoutGraph | None, DataflowGraph]:
    plain = DataflowGraph.from_function(mod["main"], mod)
    made, found = with_seams(mod, plain)
    return made, found if isinstance(found, LayoutGraph) else None, plain


def _sides(dataflow: LayoutGraph, nodes: int) -> Sides:
    pairs = [pair for seam in dataflow.seams for pair in seam.pairs()]
    entering = [nodes >> back & 1 and not nodes >> there & 1 for there, back in pairs]
    leaving = [nodes >> there & 1 and not nodes >> back & 1 for there, back in pairs]
    return any(entering), any(leaving)


def _covers(size: int, masks: Sequence[int]) -> Iterator[tuple[int, ...]]:
    def rest(covered: int) -> Iterator[tuple[int, ...]]:
        left = ~covered & (1 << size) - 1
        if not left:
            yield ()
            return
        first = left & -left
        for mask in masks:
            if mask & first and not mask & covered:
                yield from ((mask, *more) for more in rest(covered | mask))

    yield from rest(0)


def _least(
    dataflow: LayoutGraph,
    costs: dict[int, dict[Sides, float]],
    there: dict[int, float],
    back: dict[int, float],
) -> float:
    """The cheapest of all covers and layouts; node sets and seams in the plain graph's numbers."""
    plain, number = dataflow.plain, {here: n for n, here in dataflow.numbers.items()}
    seams = [(number[s.tensor], [number[r] for r in s.readers]) for s in dataflow.seams]
    best = math.inf
    for cover in _covers(len(plain), list(costs)):
        if not nx.is_directed_acyclic_graph(quotient(plain, cover)):
            continue
        for sides in itertools.product(*(costs[mask] for mask in cover)):
            total = sum(costs[mask][side] for mask, side in zip(cover, sides, strict=True))
            for tensor, readers in seams:
                maker = next(n for n, mask in enumerate(cover) if mask >> tensor & 1)
                outside = [
                    next(n for n, mask in enumerate(cover) if mask >> reader & 1)
                    for reader in readers
                    if not cover[maker] >> reader & 1
                ]
                wanted = {sides[n][0] for n in outside}
                given_in = sides[maker][1]
                if outside and not given_in and True in wanted:
                    total += there[tensor]
                if outside and given_in and False in wanted:
                    total += back[tensor]
            best = min(best, total)
    return best


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5), st.booleans())
@example(189, 5, False).via("a tensor that its maker reads and gives plain, converted for another")
def test_the_search_finds_the_least_of_all_covers_with_all_layouts(
    seed: int, size: int, is_wide: bool
) -> None:
    _, dataflow, plain = _layouts(_network(seed, size, is_wide=is_wide))
    if dataflow is None:
        return
    rng = random.Random(seed)
    found = default_rules(TARGETS).find(plain)
    few = [c for c in found.candidates if not c.inline]
    few = [c for c in few if c.nodes.bit_count() == 1 or rng.random() < 0.5]
    hosts = [c for c in found.candidates if c.inline]

    class Few(PartitionRule):
        def find(self, graph: DataflowGraph) -> Found:
            return Found((*hosts, *few))

    candidates = LayoutsRule(Few(), TARGETS).find(dataflow).candidates
    number = {here: n for n, here in dataflow.numbers.items()}
    there = {number[s.tensor]: rng.uniform(0.1, 1) for s in dataflow.seams}
    back = {number[s.tensor]: rng.uniform(0.1, 1) for s in dataflow.seams}
    costs: dict[int, dict[Sides, float]] = {}
    table: dict[Candidate, float] = {}
    for one in candidates:
        own = one.nodes & ~dataflow.conversions
        if one.rule == LAYOUTS and not one.inline:
            seam = next(s for s in dataflow.seams if s.mask & one.nodes)
            is_there = any(one.nodes >> index & 1 for index in seam.there)
            table[one] = (there if is_there else back)[number[seam.tensor]]
            continue
        mask = sum(1 << number[index] for index in bits(own))
        if one.inline:
            if mask:
                costs.setdefault(mask, {})[False, False] = 0.0
            continue
        table[one] = rng.uniform(0.1, 2)
        sides = _sides(dataflow, one.nodes)
        of_mask = costs.setdefault(mask, {})
        of_mask[sides] = min(table[one], of_mask.get(sides, math.inf))
    answer = search(dataflow, candidates, TableCosts(table))
    assert answer.partitioning is not None and answer.partitioning.seconds is not None
    assert math.isclose(answer.partitioning.seconds, _least(dataflow, costs, there, back))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 8))
def test_any_cover_computes_the_same(seed: int, size: int) -> None:
    mod = _network(seed, size)
    turned, dataflow, _ = _layouts(mod)
    if dataflow is None:
        return
    rng = random.Random(seed)
    x = np.random.default_rng(seed).normal(size=SHAPE).astype("float32")
    want = evaluate(mod, [x])
    candidates = LayoutsRule(default_rules(TARGETS), TARGETS).find(dataflow).candidates
    # Partitions with other layouts are cheap here, so that there are many.
    table = {
        c: rng.random() * (0.2 if any(_sides(dataflow, c.nodes)) else 1)
        for c in candidates
        if not c.inline
    }
    answer = search(dataflow, candidates, TableCosts(table)).partitioning
    assert answer is not None
    for got, wanted in zip(evaluate(lower(turned, dataflow, answer), [x]), want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def _shown(mod: tvm.IRModule, dataflow: DataflowGraph, partitioning: Partitioning) -> str:
    return str(lower(mod, dataflow, partitioning).script())


def test_partitionings_that_choose_no_layout_are_lowered_as_before() -> None:
    mod = _network(3, 8)
    turned, dataflow, plain = _layouts(mod)
    assert dataflow is not None and dataflow.seams
    for made in (
        greedy(plain, TARGETS),
        single_backend(plain, TARGETS.native, TARGETS.native),
        single_backend(plain, TARGETS.external[0], TARGETS.native),
    ):
        before = lower(mod, plain, made)
        after = lower(turned, dataflow, lifted(dataflow, made))
        tvm.ir.assert_structural_equal(before, after)


def test_of_two_readers_that_want_it_back_one_conversion_is_left() -> None:
    seam = Seam(0, (1, 3), (2, 4), (5, 6))
    dataflow = LayoutGraph.from_seams([[], [0], [1], [0], [3], [2], [4]], [seam])
    assert dict(dataflow.aliases(0b10100)) == {4: 2}
    assert dataflow.idle(0b10100) == 0b10000
    # So is one of two that want it converted.
    assert dict(dataflow.aliases(0b01010)) == {3: 1}
    assert dataflow.idle(0b01010) == 0b01000
    # One in the other layout, one as it was: the conversion stays, and the other reads the tensor.
    assert dict(dataflow.aliases(0b01110)) == {2: 0}
    assert dataflow.idle(0b01110) == 0b00110
    assert [list(bits(dataflow.plain.preds(n))) for n in range(3)] == [[], [0], [0]]
