"""Pads that read their own tensor, beside NumPy's."""

from __future__ import annotations

import dataclasses

import numpy as np
from tvm import relax

from collage.backends.contract import BuildContext
from tests.backends_tests.tvm import cases as tvm_cases

op = relax.op

_NUMPYS = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}

CASES: list[tuple[str, tuple[int, ...], list[int], str]] = [
    ("reflect", (2, 5, 30, 41), [0, 0, 0, 0, 3, 1, 2, 4], "pieces"),
    ("replicate", (1, 40, 33, 64), [0, 0, 0, 0, 1, 1, 9, 0], "pieces"),
    ("circular", (3, 16, 64), [0, 0, 0, 0, 0, 5], "pieces"),
    ("circular", (2, 3, 9, 10, 21), [0, 0, 0, 0, 2, 2, 1, 1, 4, 4], "pieces"),
    ("reflect", (70,), [3, 5], "pieces"),
    ("reflect", (2, 3, 20, 30), [0, 0, 0, 0, 2, 2, 0, 0], "generic"),
]
"""How, shape, widths, and which family takes it: rows that are not padded are one piece."""


def test_pads(context: BuildContext) -> None:
    """All of them in one library, followed by something that is fused behind them."""
    rng = np.random.default_rng()
    inputs = [rng.standard_normal(shape, dtype=np.float32) for _, shape, *_ in CASES]

    def body(emit: tvm_cases.Body, *args: relax.Expr) -> relax.Expr:
        padded = [
            emit(op.nn.relu(emit(op.nn.pad(x, widths, mode))))
            for x, (mode, _, widths, _) in zip(args, CASES, strict=True)
        ]
        return emit(relax.Tuple(padded))

    mod = tvm_cases.partition(body, inputs)
    context = dataclasses.replace(context, num_threads=3)
    families = tvm_cases.families(tvm_cases.kernels(mod, context))
    assert sorted(families) == sorted(family for *_, family in CASES)
    results = tvm_cases.run(mod, inputs, context)
    for got, x, (mode, _, widths, _) in zip(results, inputs, CASES, strict=True):
        pairs = list(zip(widths[::2], widths[1::2], strict=True))
        np.testing.assert_array_equal(got, np.maximum(np.pad(x, pairs, _NUMPYS[mode]), 0))


def test_pads_of_whole_numbers(context: BuildContext) -> None:
    data = np.random.default_rng().integers(-9, 9, (4, 37)).astype(np.int32)
    mod = tvm_cases.partition(lambda emit, x: emit(op.nn.pad(x, [1, 0, 3, 2], "reflect")), [data])
    (got,) = tvm_cases.run(mod, [data], context)
    np.testing.assert_array_equal(got, np.pad(data, [(1, 0), (3, 2)], "reflect"))
