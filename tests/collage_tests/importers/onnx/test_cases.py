"""The ONNX standard's own test cases: imported right, or refused by a typed error; nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm

from benchmarks.conformance.cases import Case
from benchmarks.conformance.cases import cases as standard_cases
from collage.backends.contract.errors import UserError
from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.normalize import normalize
from collage.pipeline.shapes.rows import rows_of
from tests.collage_tests.importers.onnx.onnx_models import cut_rows
from tests.collage_tests.normalize.oracle import operators, run

Array = np.ndarray[Any, np.dtype[Any]]
Runner = Callable[[tvm.IRModule, Sequence[Array]], list[Array]]

_TYPES = (np.float32, np.int64, np.int32, np.bool_)

SAMPLE = (
    *("AveragePool", "BatchNormalization", "Clip", "Concat", "Conv", "ConvTranspose", "Cos"),
    *("DepthToSpace", "Div", "Dropout", "Elu", "Erf", "Flatten", "Gelu", "Gemm"),
    *("GlobalAveragePool", "HardSigmoid", "HardSwish", "LayerNormalization", "LeakyRelu", "LRN"),
    *("MatMul", "Max", "MaxPool", "Mean", "Min", "Pad", "Pow", "PRelu", "ReduceMean", "Relu"),
    *("Reshape", "Sigmoid", "Slice", "Softmax", "Split", "Squeeze", "Sum", "Transpose"),
    *("Unsqueeze", "Where", "Mish", "Softplus", "Tile", "Expand", "SpaceToDepth", "Not"),
)

FULLY_SUPPORTED = {
    *("AveragePool", "Clip", "Concat", "Conv", "Erf", "Flatten", "Gelu", "Gemm", "HardSwish"),
    *("GlobalAveragePool", "MatMul", "Max", "Mean", "Min", "Pad", "Relu", "Softmax", "Sum"),
    *("DepthToSpace", "LRN", "Transpose", "Sigmoid"),
}
"""No case of these may be refused."""


@cache
def cases() -> list[Case]:
    """Every single-node case of dense float32 data; what decides shapes is bound."""
    return [case for case in standard_cases().values() if _is_taken(case)]


def _is_taken(case: Case) -> bool:
    tensors = [*case.inputs, *case.outputs]
    return (
        len(case.model.graph.node) == 1
        and all(isinstance(x, np.ndarray) and x.dtype in _TYPES for x in tensors)
        and any(x.dtype == np.float32 for x in tensors)
    )


def outcome(case: Case, execute: Runner) -> str:
    """``ok``, ``refused``, or what is wrong."""
    try:
        loaded = load_model(case.model)
        rows = rows_of(loaded)
        mod = normalize(loaded.mod)
    except UserError:
        return "refused"
    found = cut_rows(rows, execute(mod, case.inputs))
    if len(found) < len(case.outputs):
        return f"{len(found)} outputs instead of {len(case.outputs)}"
    for ours, wanted in zip(found, case.outputs, strict=False):
        if (ours.shape, ours.dtype) != (wanted.shape, wanted.dtype):
            return f"{ours.shape} {ours.dtype} instead of {wanted.shape} {wanted.dtype}"
        if not np.allclose(ours, wanted, rtol=1e-3, atol=1e-5, equal_nan=True):
            return "wrong values"
    debris = {"expand_dims", "squeeze", "stack", "flatten"} & set(operators(mod))
    return f"leaves {debris}" if debris else "ok"


def count(chosen: Sequence[Case], execute: Runner) -> Counter[str]:
    """Outcomes of these cases, printed too; fails on any that is neither right nor refused."""
    found = {case.name: outcome(case, execute) for case in chosen}
    counts = Counter(found.values())
    print(f"{len(chosen)} cases: {dict(counts)}")
    wrong = {name: what for name, what in found.items() if what not in ("ok", "refused")}
    assert not wrong
    operators_of = {case.name: case.operator for case in chosen}
    refused = {operators_of[name] for name, what in found.items() if what == "refused"}
    assert not refused & FULLY_SUPPORTED
    return counts


def quick(mod: tvm.IRModule, inputs: Sequence[Array]) -> list[Array]:
    """The numpy oracle; pools, whose last windows it counts otherwise, through TVM."""
    return (run if any("pool" in name for name in operators(mod)) else evaluate)(mod, inputs)


def test_sample_of_standard_cases() -> None:
    chosen = [case for case in cases() if case.operator in SAMPLE]
    counts = count(chosen, quick)
    assert counts["ok"] > 250


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_standard_cases() -> None:
    counts = count(cases(), run)
    assert counts["ok"] > 550
