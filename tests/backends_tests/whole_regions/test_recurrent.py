"""Recurrent layers as one operator of a library's, of every cell in every direction."""

from __future__ import annotations

import numpy as np

from collage.backends.contract import BuildContext
from collage.backends.relax.recurrent import Recurrence
from collage.cost.reference import evaluate
from tests.backends_tests.recurrent_layers import KINDS, layer
from tests.backends_tests.whole_regions.regions import Regions


def test_every_cell_in_every_direction(regions: Regions, context: BuildContext) -> None:
    seed = int(np.random.SeedSequence().entropy) % 2**32
    rng, graphs = np.random.default_rng(seed), {}
    for index, (cell, direction) in enumerate(KINDS):
        for batch in (1, int(rng.integers(2, 6))):
            steps, hidden = int(rng.integers(2, 9)), int(rng.integers(1, 70))
            ends_early = bool(rng.integers(0, 2))
            one = Recurrence(cell, direction, steps, batch, hidden, "float32", ends_early)
            flags = {"bias": (index + batch) % 2 == 1, "given": (index + batch) % 3 > 0}
            mod = layer(one, int(rng.integers(1, 50)), rng=rng, **flags)
            graphs[f"{cell} {direction} {batch} {ends_early} {seed}"] = mod
    assert all(regions.is_taken_whole(mod, regions.target()) for mod in graphs.values())
    library = regions.library(graphs, context)
    for name, mod in graphs.items():
        shapes = [[int(n) for n in param.ty.shape] for param in mod["main"].params]
        inputs = [rng.uniform(-1, 1, shape).astype("float32") for shape in shapes]
        wanted = evaluate(mod, inputs)
        scale = max(1.0, *(float(np.abs(expected).max()) for expected in wanted))
        for found, expected in zip(library.run(name, inputs), wanted, strict=True):
            assert found.shape == expected.shape, name
            assert np.abs(found - expected).max() <= 1e-5 * scale, name
