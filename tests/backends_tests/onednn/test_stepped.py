"""Products of 8-bit integers: exact sums, on processors with and without instructions for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.relax.stepped import Steps, stepped_matmul
from collage.cost.reference import evaluate
from collage.testing.graphs import graph
from tests.backends_tests.onednn.regions import Regions, regions, run_elsewhere

SEED = int(np.random.SeedSequence().entropy) % 2**32
"""New at every run; a failure shows it."""

_ROWS = ((1,), (7,), (2, 5), (3, 1, 4), (130,))

_KINDS = {
    "int8": (-128, 128),
    "uint8 centred": (-90, 120),
    "uint8": (-100, 156),
    "in pairs": (-64, 65),
}
"""What weights are less their zero points; the last ones leave sums of two products in 16 bits."""


def _product(
    rng: np.random.Generator, rows: tuple[int, ...], kind: str, fixed: bool = False
) -> tvm.IRModule:
    width, columns = int(rng.integers(1, 90)), int(rng.integers(1, 90))
    weights = rng.integers(*_KINDS[kind], (width, columns))
    scales = rng.uniform(0.001, 0.1, columns if rows[0] % 2 else 1)
    steps = Steps(0.017, int(rng.integers(256))) if fixed else None
    return graph([(*rows, width)], lambda emit, x: stepped_matmul(x, weights, scales, steps))


def _three_of_one(rng: np.random.Generator) -> tvm.IRModule:
    """Queries, keys and values: the input is rounded once."""
    weights = [rng.integers(-128, 128, (64, 48)) for _ in range(3)]

    def body(emit, x):  # type: ignore[no-untyped-def]
        parts = [emit(stepped_matmul(x, w, np.float32(0.01))) for w in weights]
        return op.concat(parts, axis=-1)

    return graph([(2, 9, 64)], body)


def _rounded_convolution(rng: np.random.Generator) -> tvm.IRModule:
    """Rounded behind it by powers of two, of whole numbers: nothing is near a tie by chance."""
    weights = relax.const(rng.integers(-3, 4, (7, 5, 3, 3)).astype("float32"))

    def rounded(emit, x, step, zero, kind):  # type: ignore[no-untyped-def]
        numbers = relax.const(np.float32(step)), relax.const(np.array(zero, kind))
        there = emit(op.quantize(x, *numbers, axis=1, out_dtype=kind))
        return emit(op.dequantize(there, *numbers, axis=1))

    def body(emit, x):  # type: ignore[no-untyped-def]
        y = emit(op.nn.conv2d(rounded(emit, x, 0.25, 120, "uint8"), weights))
        return rounded(emit, y, 0.5, -3, "int8")

    return graph([(1, 5, 9, 8)], body)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, tvm.IRModule], Regions]:
    rng = np.random.default_rng(SEED)
    graphs = {
        f"of_{'_'.join(map(str, rows))}_{kind.replace(' ', '_')}": _product(rng, rows, kind)
        for rows in _ROWS
        for kind in _KINDS
    }
    for kind in _KINDS:
        graphs[f"fixed_{kind.replace(' ', '_')}"] = _product(rng, (3, 5), kind, fixed=True)
    graphs["rounded"] = _rounded_convolution(rng)
    graphs["three"] = _three_of_one(rng)
    return graphs, Regions(graphs, tmp_path_factory.mktemp("stepped"))


def _inputs(mod: tvm.IRModule, rng: np.random.Generator, which: str) -> list[np.ndarray]:
    shapes = [[int(n) for n in param.ty.shape] for param in mod["main"].params]
    values = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    return [
        {"mixed": x, "positive": np.abs(x), "negative": -np.abs(x), "zeros": 0 * x}[which]
        for x in values
    ]


def _require_same(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        assert np.abs(one - other).max() <= 2e-5 * max(np.abs(other).max(), 1e-3), SEED


@pytest.mark.parametrize("which", ["mixed", "positive", "negative", "zeros"])
def test_products(compiled: tuple[dict[str, tvm.IRModule], Regions], which: str) -> None:
    graphs, regions_of = compiled
    rng = np.random.default_rng([SEED, 1])
    for name, mod in graphs.items():
        inputs = _inputs(mod, rng, which)
        _require_same(regions_of.run(name, inputs), evaluate(mod, inputs))


def test_each_is_one_region(compiled: tuple[dict[str, tvm.IRModule], Regions]) -> None:
    graphs, regions_of = compiled
    assert len(regions(regions_of.module)) == len(graphs)


def test_written_out_it_is_the_same() -> None:
    rng = np.random.default_rng(SEED)
    for kind in _KINDS:
        mod = _product(rng, (3, 4), kind)
        inputs = _inputs(mod, rng, "mixed")
        executable = tvm.compile(relax.transform.LegalizeOps()(mod), "llvm")
        found = relax.VirtualMachine(executable, tvm.cpu())["main"](
            *map(tvm.runtime.tensor, inputs)
        )
        _require_same([found.numpy()], evaluate(mod, inputs))


def test_where_bytes_would_saturate(
    compiled: tuple[dict[str, tvm.IRModule], Regions], tmp_path: Path
) -> None:
    """Processors without VNNI add pairs of products in 16 bits: floats are multiplied there, where
    these could leave them."""
    graphs, regions_of = compiled
    rng = np.random.default_rng([SEED, 2])
    given = {name: _inputs(mod, rng, "mixed")[0] for name, mod in graphs.items()}
    found, _ = run_elsewhere(regions_of.path, given, tmp_path, ONEDNN_MAX_CPU_ISA="AVX2")
    for name, mod in graphs.items():
        _require_same([found[name]], evaluate(mod, [given[name]]))
