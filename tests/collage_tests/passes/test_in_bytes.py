"""Partitions in bytes: what they compute, against integers in numpy, and on the libraries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.compile import compile_module
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.registry import get_backend
from collage.backends.link import stage_libraries
from collage.backends.relax.byte_products import MOST_IN_PAIRS, ByteProduct
from collage.cost.reference import evaluate, largest_error
from collage.normalize import normalize
from collage.passes import extract
from collage.pipeline.precision.calibration import calibrate
from collage.search.byoc import choose_matches
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.search.rules import MatchRule
from collage.search.rules.combine import join
from collage.testing.graphs import Emit, constant, graph
from tests.object_cache import cache_with_objects

Array = np.ndarray


def _target(name: str) -> BackendTarget:
    if not get_backend(name).probe().usable:
        pytest.skip(f"the extra [{name}] is not installed")
    return BackendTarget.of(name, tvm.target.Target("llvm"), {"precision": "int8"})


def _network() -> tvm.IRModule:
    """Convolutions, one of them depthwise, around a shortcut, and a product of matrices."""
    random = np.random.default_rng()

    def convolution(emit: Emit, x: relax.Expr, *shape: int, groups: int = 1) -> relax.Expr:
        weights = constant(*shape, rng=random, scale=0.2)
        bias = constant(1, shape[0], 1, 1, rng=random)
        made = op.nn.conv2d(x, weights, padding=(1, 1), groups=groups)
        return emit(op.nn.relu(emit(op.add(emit(made), bias))))

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = convolution(emit, x, 8, 3, 3, 3)
        z = convolution(emit, y, 8, 1, 3, 3, groups=8)
        z = emit(op.add(convolution(emit, z, 8, 8, 3, 3), y))
        flat = emit(op.mean(z, [2, 3]))
        return relax.Tuple([z, emit(op.matmul(flat, constant(8, 5, rng=random)))])

    return normalize(graph([(2, 3, 9, 10)], body))


def _calibrated(
    mod: tvm.IRModule, samples: list[list[Array]]
) -> tuple[tvm.IRModule, DataflowGraph]:
    dataflow = DataflowGraph.from_function(mod["main"], mod)
    # The other methods cut off what is rare, by any amount.
    found = calibrate(mod, dataflow, samples, method="minmax", most=MOST_IN_PAIRS)
    mod = found.said_by(mod)
    return mod, DataflowGraph.from_function(mod["main"], mod)


def _whole(dataflow: DataflowGraph, target: BackendTarget) -> Candidate:
    # A processor without instructions for bytes has other ways to compute the same.
    exact = BackendTarget.of(target.backend, target.device)
    parts = choose_matches(dataflow, MatchRule(exact).find(dataflow).candidates)
    return replace(join(parts, dataflow, "whole"), target=target)


def _sample() -> list[Array]:
    return [np.random.default_rng().standard_normal((2, 3, 9, 10)).astype(np.float32)]


@pytest.mark.parametrize("name", ["onednn", "openvino"])
def test_a_region_in_bytes_on_a_library(name: str, tmp_path: Path) -> None:
    target = _target(name)
    context = BuildContext(cache_with_objects(tmp_path), tmp_path, num_threads=1)
    original, sample = _network(), _sample()
    # Steps are chosen for the sample, too: what lies outside of them is cut off.
    mod, dataflow = _calibrated(original, [_sample(), sample])
    alone = extract(mod, dataflow, _whole(dataflow, target))
    expected, meant = evaluate(alone, sample), evaluate(original, sample)
    # Something is rounded, and not too much of it.
    assert all(1e-4 < largest_error(a, b) < 0.1 for a, b in zip(expected, meant, strict=True))
    library = compile_module(alone, [target], tmp_path / "model.so", context)
    stage_libraries(library, copy=False)
    module = tvm.runtime.load_module(str(library.path))
    machine = relax.VirtualMachine(module, tvm.cpu())
    got = machine["main"](*[tvm.runtime.tensor(array) for array in sample])
    for one, wanted in zip(got, expected, strict=True):
        # Values between two steps may fall to either.
        assert largest_error(one.numpy(), wanted) < 0.02


def test_products_are_those_of_integers() -> None:
    target = _target("onednn")
    random = np.random.default_rng()
    weights = random.standard_normal((16, 7)).astype(np.float32)
    mod = normalize(graph([(5, 16)], lambda _, x: op.matmul(x, relax.const(weights))))
    x = random.standard_normal((5, 16)).astype(np.float32)
    mod, dataflow = _calibrated(mod, [[x]])
    (expected,) = evaluate(extract(mod, dataflow, _whole(dataflow, target)), [x])
    # By hand: bytes, integer sums, one scale for each column.
    scale = np.abs(weights).max(0) / MOST_IN_PAIRS
    whole = np.rint(weights / scale).astype(np.int64)
    attrs = extract(mod, dataflow, _whole(dataflow, target)).functions
    text = "\n".join(str(function) for function in attrs.values())
    assert "collage.stepped_matmul" in text
    low, high = min(x.min(), 0), max(x.max(), 0)
    step = (high - low) / 255
    rounded = np.rint(x / step) * step
    by_hand = rounded @ (whole * scale)
    assert largest_error(expected, by_hand.astype(np.float32)) < 0.03
    assert largest_error(expected, x @ weights) < 0.03


def test_who_is_outside_reads_all_digits() -> None:
    target = _target("onednn")
    weights = constant(4, 4, 1, 1)

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        first = emit(op.nn.relu(x))
        return relax.Tuple([first, emit(op.nn.conv2d(first, weights))])

    mod = normalize(graph([(1, 4, 6, 6)], body))
    x = [np.random.default_rng().standard_normal((1, 4, 6, 6)).astype(np.float32)]
    mod, dataflow = _calibrated(mod, [x])
    read, product = evaluate(extract(mod, dataflow, _whole(dataflow, target)), x)
    first, expected = evaluate(mod, x)
    assert (read == first).all()
    assert 1e-5 < largest_error(product, expected) < 0.05


def test_targets_of_more_digits_are_left_alone() -> None:
    mod, dataflow = _calibrated(_network(), [_sample()])
    target = BackendTarget.of("onednn", tvm.target.Target("llvm"))
    sample = _sample()
    got = evaluate(extract(mod, dataflow, _whole(dataflow, target)), sample)
    assert all((a == b).all() for a, b in zip(got, evaluate(mod, sample), strict=True))


def test_what_has_no_constant_weights_is_no_product_of_bytes() -> None:
    mod = graph([(4, 4), (4, 4)], lambda _, a, b: op.matmul(a, b))
    (binding,) = mod["main"].body.blocks[0].bindings
    assert ByteProduct.of(binding.value) is None
