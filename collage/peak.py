"""How fast this device can multiply at best: the base of every candidate's lower bound.

The closer the bound, the fewer candidates a search has to measure. A matrix product that fits the
caches is what libraries are best at, so its best rate, with a margin, bounds everything.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax

from collage.backends.base import BackendTarget
from collage.candidate_costs import MeasuredCandidateCosts
from collage.cost.base import CostModel
from collage.search.dataflow import DataflowGraph
from collage.search.rules import default_rules

_ROWS, _INNER, _COLUMNS = 512, 1024, 1024

_MARGIN = 1.25
"""A convolution may beat a matrix product a little; by more, and the search would be inexact."""


def peak_flops_per_sec(model: CostModel, targets: Sequence[BackendTarget]) -> float:
    """Best rate of any target on one matrix product, times a margin.

    Parameters
    ----------
    model : CostModel
        Measures, or answers from the log, so that a replay searches by the same bounds.

    Returns
    -------
    float
        Floating-point operations per second, a multiply-add as two; ``inf`` (no bound) when the
        product runs nowhere.
    """
    mod = _product()
    graph = DataflowGraph.from_function(mod["main"], mod)
    costs = MeasuredCandidateCosts(mod, graph, model)
    costs.seconds(default_rules(targets).find(graph).candidates)
    fastest = [min(c.samples_sec) for c in costs.costs.values() if c.is_valid and c.samples_sec]
    flops = 2.0 * _ROWS * _INNER * _COLUMNS
    return _MARGIN * flops / min(fastest) if fastest else float("inf")


def _product() -> tvm.IRModule:
    random = np.random.default_rng(0)
    weight = relax.const(random.standard_normal((_INNER, _COLUMNS), "float32"))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((_ROWS, _INNER), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.matmul(x, weight))
        builder.emit_func_output(out)
    return builder.get()
