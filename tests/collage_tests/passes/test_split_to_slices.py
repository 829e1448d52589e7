"""Splits become slices: the same values, and regions that do not end where channels part."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.cost.reference import evaluate
from collage.normalize import normalize
from collage.passes.split_to_slices import split_to_slices
from collage.rewrite import flat_bindings, op_name
from collage.search.dataflow import DataflowGraph
from collage.search.rules import default_rules
from collage.targets import resolve_targets
from collage.testing.graphs import Emit, constant, graph


def _names(mod: tvm.IRModule) -> list[str]:
    return [op_name(value) for _, value in flat_bindings(mod["main"])]


@pytest.mark.parametrize(
    ("shape", "sections", "axis"),
    [((2, 6, 4), 3, 1), ((2, 6, 4), [1, 4], -2), ((7,), [3], 0), ((3, 10), [2, 2, 9], 1)],
)
def test_parts_are_the_same(shape: tuple[int, ...], sections: int | list[int], axis: int) -> None:
    def parts_of(emit: Emit, x: relax.Expr) -> relax.Expr:
        parts = emit(op.split(x, sections, axis=axis))
        return relax.Tuple([emit(op.exp(emit(parts[i]))) for i in range(len(parts.ty.fields))])

    mod = normalize(graph([shape], parts_of))
    cut = normalize(split_to_slices(mod))
    assert "split" in _names(mod) and "split" not in _names(cut)
    x = np.random.default_rng().standard_normal(shape).astype(np.float32)
    for got, wanted in zip(evaluate(cut, [x]), evaluate(mod, [x]), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_part_that_nobody_reads_is_not_cut() -> None:
    mod = graph([(4, 8)], lambda emit, x: op.exp(emit(emit(op.split(x, 2, axis=1))[1])))
    assert _names(split_to_slices(mod)) == ["strided_slice", "exp"]


def test_many_parts_stay_one_kernel() -> None:
    def steps(emit: Emit, x: relax.Expr) -> relax.Expr:
        parts = emit(op.split(x, 16, axis=0))
        return op.add(emit(parts[0]), emit(parts[15]))

    mod = graph([(16, 8)], steps)
    assert "split" in _names(split_to_slices(mod))


def test_a_region_of_a_library_goes_through() -> None:
    def halves(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.conv2d(x, constant(32, 8, 1, 1)))
        parts = emit(op.split(y, 2, axis=1))
        first, second = emit(parts[0]), emit(parts[1])
        made = emit(op.nn.conv2d(second, constant(16, 16, 1, 1)))
        return op.concat([first, made], axis=1)

    targets = resolve_targets(["llvm", "onednn"])
    mod = normalize(graph([(1, 8, 5, 5)], halves))

    def covered(module: tvm.IRModule) -> bool:
        dataflow = DataflowGraph.from_function(module["main"], module)
        found = default_rules(targets).find(dataflow).candidates
        return any(c.backend == "onednn" and c.nodes == dataflow.all_nodes for c in found)

    assert not covered(mod)
    assert covered(normalize(split_to_slices(mod)))
