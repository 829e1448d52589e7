"""Ensembles of trees: few rows and many, one target a tree and many a leaf."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from benchmarks.gpu.cases._case import CudaCase
from collage.backends.relax.trees import Branches, Ensemble, packed, tree_ensemble
from collage.testing.graphs import graph

RTOL = {"float32": 1e-5, "float64": 1e-12}

_DEPTH = 5


def cases() -> list[CudaCase]:
    """Each in a type of its own."""
    layers = {
        "a_row": Ensemble(1, 20, 300, 1, "float32", "sum", "leq", False, False),
        "many_rows": Ensemble(3000, 9, 50, 3, "float32", "sum", "lt", True, False),
        "leaves_of_classes": Ensemble(70, 9, 21, 5, "float64", "sum", "both", True, True),
        "largest": Ensemble(200, 9, 3, 2, "float32", "max", "leq", False, True),
    }
    return [
        CudaCase(f"{name}-{one.dtype}", "tvm", "", _module(one), rtol=RTOL[one.dtype])
        for name, one in layers.items()
    ]


def _module(one: Ensemble) -> tvm.IRModule:
    random = np.random.default_rng(0)
    inner, each = 2**_DEPTH - 1, 2 ** (_DEPTH + 1) - 1
    own = np.arange(each)
    below, above = (np.where(own < inner, 2 * own + side, own) for side in (1, 2))
    first = np.arange(one.trees) * each
    count = one.trees * each
    strict = {"leq": np.zeros(count), "lt": np.ones(count)}.get(one.compared)
    branches = Branches(
        random.integers(0, one.features, count),
        random.uniform(-1, 1, count).astype(one.dtype),
        (first[:, None] + below).reshape(-1),
        (first[:, None] + above).reshape(-1),
        missing=random.integers(0, 1 + one.missing, count).astype(bool),
        strict=(random.integers(0, 2, count) if strict is None else strict).astype(bool),
    )
    values = random.uniform(0.5, 1, (count, *(one.targets,) * one.has_leaves)).astype(one.dtype)
    targets = None if one.has_leaves else np.arange(one.trees) % one.targets
    operands = packed(branches, first, values=values, targets=targets)
    return graph(
        [(one.rows, one.features)],
        lambda emit, x: emit(
            tree_ensemble(
                [x, *(relax.const(array, str(array.dtype)) for array in operands)],
                one.targets,
                combined=one.combined,
                compared=one.compared,
                missing=one.missing,
            )
        ),
        one.dtype,
    )
