"""Batched products whose results are read in another order: right, and by a kernel."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.cost.reference import DEFAULT_RTOL, evaluate, largest_error
from collage.testing.graphs import Emit, graph
from tests.backends_tests.onednn.regions import Regions, random_inputs

ORDERS = [order for order in itertools.permutations(range(3)) if order != (0, 1, 2)]


def _of(order: tuple[int, ...]) -> Callable[[Emit, relax.Expr], relax.Expr]:
    """Products of a batch with itself, as recommenders multiply their fields."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        products = emit(op.matmul(x, emit(op.permute_dims(x, [0, 2, 1]))))
        return emit(op.nn.relu(emit(op.permute_dims(products, list(order)))))

    return body


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Regions:
    graphs = {"".join(map(str, order)): graph([(16, 9, 32)], _of(order)) for order in ORDERS}
    return Regions(graphs, tmp_path_factory.mktemp("order"))


_CHILD = """
import sys, numpy as np, tvm
from tvm import relax
vm = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
given = np.load(sys.argv[2])
np.savez(sys.argv[3], **{n: vm[n](tvm.runtime.tensor(given[n])).numpy() for n in given.files})
"""


def test_no_order_is_left_to_the_reference(compiled: Regions, tmp_path: Path) -> None:
    rng = np.random.default_rng()
    given = {name: random_inputs(mod, rng)[0] for name, mod in compiled.graphs.items()}
    np.savez(tmp_path / "given.npz", **given)
    files = [str(compiled.path), str(tmp_path / "given.npz"), str(tmp_path / "found.npz")]
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, *files],
        env={**os.environ, "ONEDNN_VERBOSE": "1"},
        check=True,
        timeout=300,
        capture_output=True,
        text=True,
    )
    found = np.load(tmp_path / "found.npz")
    for name, mod in compiled.graphs.items():
        (wanted,) = evaluate(mod, [given[name]])
        assert largest_error(found[name], wanted) <= DEFAULT_RTOL, name
    run = [line for line in done.stdout.splitlines() if ",exec,cpu,matmul," in line]
    assert len(run) >= len(ORDERS)
    assert not [line for line in run if ",ref" in line]
