"""Ensembles of trees as one operator: its program, however it is cut, beside plain walks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.trees import NAME, Branches, Ensemble, packed, tree_ensemble
from collage.backends.relax.trees.program import Cut, legalize, legalize_plainly
from collage.backends.tvm.cpu.trees import cut_of
from collage.cost.reference.evaluator import evaluate
from collage.testing import graph


def forest(trees: int, features: int, dtype: str, compared: str) -> tuple[Branches, np.ndarray]:
    """Trees of odd shapes in one row of nodes."""
    rng = np.random.default_rng()
    below, above, roots = [], [], []
    for _ in range(trees):
        roots.append(len(below))
        last = len(below)
        below.append(last)
        above.append(last)
        for _ in range(int(rng.integers(0, 12))):
            # Some leaf becomes a node with two.
            leaves = [i for i in range(roots[-1], last + 1) if below[i] == i]
            split = int(rng.choice(leaves))
            below[split], above[split] = last + 1, last + 2
            below += [last + 1, last + 2]
            above += [last + 1, last + 2]
            last += 2
    count = len(below)
    strict = {"leq": np.zeros(count), "lt": np.ones(count)}.get(compared)
    if strict is None:
        strict = rng.integers(0, 2, count)
    branches = Branches(
        rng.integers(0, features, count),
        (rng.integers(-2, 3, count) / 2).astype(dtype),
        *(np.asarray(below), np.asarray(above)),
        missing=rng.integers(0, 2, count).astype(bool),
        strict=strict.astype(bool),
    )
    return branches, np.asarray(roots)


def walked(branches: Branches, root: int, row: np.ndarray) -> int:
    """The leaf that a row ends at, by the definition."""
    at, strict = root, np.broadcast_to(branches.strict, branches.features.shape)
    while branches.below[at] != at:
        value, threshold = row[branches.features[at]], branches.thresholds[at]
        holds = value < threshold if strict[at] else value <= threshold
        holds |= bool(np.isnan(value) and branches.missing[at])
        at = int(branches.below[at] if holds else branches.above[at])
    return at


def check(one: Ensemble, cut: Cut | None) -> None:
    rng = np.random.default_rng()
    branches, roots = forest(one.trees, one.features, one.dtype, one.compared)
    shape = (len(branches.features), *(one.targets,) * one.has_leaves)
    # Sums of these are exact, in whatever order they are added up.
    values = (rng.integers(-1024, 1025, shape) / 1024).astype(one.dtype)
    targets = None if one.has_leaves else rng.integers(0, one.targets, one.trees)
    x = (rng.integers(-2, 3, (one.rows, one.features)) / 2).astype(one.dtype)
    x[rng.random(x.shape) < 0.1] = np.nan
    operands = packed(branches, roots, values=values, targets=targets)
    mod = graph(
        [x.shape],
        lambda emit, table: tree_ensemble(
            [table, *(relax.const(array, str(array.dtype)) for array in operands)],
            one.targets,
            combined=one.combined,
            compared=branches.compared,
            missing=branches.tracks_missing,
        ),
        one.dtype,
    )
    combine: Any = {"sum": np.add, "min": np.minimum, "max": np.maximum}[one.combined]
    wanted = np.full((one.rows, one.targets), one.neutral)
    for number, row in enumerate(x):
        for tree, root in enumerate(roots):
            said = values[walked(branches, int(root), row)]
            kept = slice(None) if targets is None else targets[tree]
            wanted[number, kept] = combine(wanted[number, kept], said)
    (by_reference,) = evaluate(mod, [x])
    np.testing.assert_array_equal(by_reference, wanted)
    tasks = lambda count: T.parallel(0, count)  # noqa: E731
    how = legalize_plainly if cut is None else lambda b, c: legalize(b, c, cut, tasks)
    executable = tvm.compile(
        relax.transform.LegalizeOps({NAME: how})(mod), tvm.target.Target({"kind": "llvm"})
    )
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(found, wanted)


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_any_way_to_cut_it(data: st.DataObject) -> None:
    one = Ensemble(
        rows=data.draw(st.integers(1, 40)),
        features=data.draw(st.integers(1, 5)),
        trees=data.draw(st.integers(1, 20)),
        targets=data.draw(st.integers(1, 3)),
        dtype=data.draw(st.sampled_from(["float32", "float64"])),
        combined=data.draw(st.sampled_from(["sum", "min", "max"])),
        compared=data.draw(st.sampled_from(["leq", "lt", "both"])),
        missing=True,
        has_leaves=data.draw(st.booleans()),
    )
    cut = Cut(
        rows=data.draw(st.integers(1, one.rows)),
        chunks=data.draw(st.integers(1, one.trees)),
        walks=data.draw(st.sampled_from([1, 3, 8])),
        of_rows=data.draw(st.booleans()),
    )
    check(one, cut)


@pytest.mark.parametrize("rows", [1, 17, 60])
def test_as_it_is_cut_for_a_processor(rows: int) -> None:
    one = Ensemble(rows, 4, 700, 2, "float32", "sum", "leq", False, False)
    check(one, cut_of(one, 3))


def test_on_any_machine() -> None:
    check(Ensemble(9, 4, 5, 3, "float32", "sum", "both", True, True), None)


@given(
    rows=st.integers(1, 5000),
    trees=st.integers(1, 3000),
    features=st.integers(1, 10000),
    threads=st.integers(1, 96),
)
def test_no_task_is_without_work(rows: int, trees: int, features: int, threads: int) -> None:
    cut = cut_of(Ensemble(rows, features, trees, 1, "float32", "sum", "leq", False, False), threads)
    assert 1 <= cut.rows <= rows
    assert 1 <= cut.chunks <= -(-trees // (1 if cut.of_rows else cut.walks))


def test_a_module_is_the_same_after_it_was_saved() -> None:
    branches, roots = forest(3, 2, "float64", "lt")
    operands = packed(branches, roots, values=np.zeros(len(branches.features)))
    mod = graph(
        [(5, 2)],
        lambda emit, x: tree_ensemble(
            [x, *(relax.const(array, str(array.dtype)) for array in operands)], 1, compared="lt"
        ),
        "float64",
    )
    again = tvm.ir.load_json(tvm.ir.save_json(mod))
    tvm.ir.assert_structural_equal(again, mod)
    call = again["main"].body.blocks[0].bindings[0].value
    assert Ensemble.of(call).threshold == "float64" and Ensemble.of(call).compared == "lt"
