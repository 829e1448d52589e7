"""Recurrent layers as one primitive, of every cell in every direction."""

from __future__ import annotations

import numpy as np
import pytest

from collage.backends.relax.recurrent import Recurrence
from collage.cost.reference import evaluate
from tests.backends_tests.onednn.regions import Regions, regions
from tests.backends_tests.recurrent_layers import KINDS, layer

SEED = int(np.random.SeedSequence().entropy) % 2**32
"""New at every run; a failure shows it."""


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Regions]:
    rng = np.random.default_rng(SEED)
    graphs = {}
    for index, (cell, direction) in enumerate(KINDS):
        for batch in (1, int(rng.integers(2, 6))):
            steps, hidden = int(rng.integers(2, 9)), int(rng.integers(1, 70))
            one = Recurrence(cell, direction, steps, batch, hidden, "float32", False)
            flags = {"bias": (index + batch) % 2 == 1, "given": (index + batch) % 3 > 0}
            name = f"{cell}_{direction}_{min(batch, 2)}"
            graphs[name] = layer(one, int(rng.integers(1, 50)), rng=rng, **flags)
    return graphs, Regions(graphs, tmp_path_factory.mktemp("recurrent"))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(("cell", "direction"), KINDS)
def test_a_layer(layers: tuple[dict, Regions], cell: str, direction: str, batch: int) -> None:
    graphs, compiled = layers
    name = f"{cell}_{direction}_{batch}"
    rng = np.random.default_rng([SEED, batch])
    shapes = [[int(n) for n in param.ty.shape] for param in graphs[name]["main"].params]
    inputs = [rng.uniform(-1, 1, shape).astype("float32") for shape in shapes]
    wanted = evaluate(graphs[name], inputs)
    scale = max(1.0, *(float(np.abs(expected).max()) for expected in wanted))
    for found, expected in zip(compiled.run(name, inputs), wanted, strict=True):
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= 1e-5 * scale, SEED


def test_each_is_one_region(layers: tuple[dict, Regions]) -> None:
    graphs, compiled = layers
    assert len(regions(compiled.module)) == len(graphs)
