"""One bundle, many threads: every one gets its own, right, answers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
from tvm import relax
from tvm.relax import op

import collage
from collage.testing import constant, graph
from tests.collage_tests.pipeline.flat_costs import FlatCosts

THREADS, CALLS = 6, 8


def test_threads_get_the_answers_to_their_own_questions(compiled_bundle: Path) -> None:
    """Against the same calls one after the other; all threads begin at the same time."""
    bundle = collage.load(compiled_bundle)
    rng = np.random.default_rng()
    images = rng.standard_normal((THREADS, CALLS, *bundle.inputs[0].shape)).astype("float32")
    alone = collage.load(compiled_bundle)
    want = [[alone(image) for image in row] for row in images]
    barrier = threading.Barrier(THREADS)

    def calls(row: np.ndarray) -> list[np.ndarray]:
        barrier.wait(60)
        return [bundle(image) for image in row]

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(calls, images))
    for mine, right in zip(found, want, strict=True):
        for answer, expected in zip(mine, right, strict=True):
            np.testing.assert_array_equal(answer, expected)
    assert 1 <= len(bundle._contexts) <= THREADS


@pytest.mark.parametrize("strategy", ["single:onednn", "single:openblas", "single:tvm"])
def test_every_library_alone_bears_threads(strategy: str, tmp_path: Path) -> None:
    width = 32

    def body(emit: object, x: relax.Var) -> relax.Expr:
        hidden = emit(op.nn.relu(emit(op.matmul(x, constant(width, width)))))  # type: ignore[operator]
        return op.matmul(hidden, constant(width, width))

    targets = ["llvm", "onednn", "openblas"]
    result = collage.optimize(
        graph([(8, width)], body), targets, strategy=strategy, cost_model=FlatCosts("tvm")
    )
    bundle = collage.load(result.export(tmp_path / "net.bundle"))
    rng = np.random.default_rng()
    given = rng.standard_normal((THREADS, 8, width)).astype("float32")
    want = [bundle(one) for one in given]
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(CALLS):
            for found, expected in zip(pool.map(bundle, given), want, strict=True):
                np.testing.assert_array_equal(found, expected)


def test_an_error_in_a_call_leaves_the_bundle_usable(compiled_bundle: Path) -> None:
    bundle = collage.load(compiled_bundle)
    image = np.zeros(bundle.inputs[0].shape, "float32")
    want = bundle(image)
    with pytest.raises(RuntimeError), bundle._contexts.borrow() as functions:
        functions["main"]()
    np.testing.assert_array_equal(bundle(image), want)
    assert len(bundle._contexts) == 1


def test_contexts_share_the_weights(tmp_path: Path) -> None:
    """A hundred of them take less memory than one more copy of the weights would."""
    size = 1024

    def body(emit: object, x: relax.Var) -> relax.Expr:
        return op.matmul(x, constant(size, size))

    result = collage.optimize(
        graph([(1, size)], body), ["llvm"], strategy="single:tvm", cost_model=FlatCosts("tvm")
    )
    bundle = collage.load(result.export(tmp_path / "net.bundle"))
    x = np.random.default_rng().standard_normal((1, size)).astype("float32")
    bundle(x)
    process = psutil.Process()
    before = process.memory_info().rss
    machines = [bundle._contexts._new() for _ in range(100)]
    grown = process.memory_info().rss - before
    assert len(machines) == 100
    assert grown < 25 * size * size * 4
