"""Gathers and scatters of the reference against TVM's own unscheduled code."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.cost.reference.fallback import Compiled
from collage.cost.reference.operators import OPERATORS

RNG = np.random.default_rng(31)
X = RNG.standard_normal((5, 6, 4))


def _both(call: relax.Call, *args: object) -> None:
    given = [np.asarray(a) if not isinstance(a, tuple) else a for a in args]
    normal = relax.BlockBuilder().normalize(call)
    wide = [a.astype("float32") if a.dtype == "float64" else a for a in _flat(given)]
    found = OPERATORS[call.op.name](normal, given)
    np.testing.assert_allclose(found, Compiled(None).evaluate(call, wide), rtol=1e-5, atol=1e-5)


def _flat(args: list[object]) -> list[np.ndarray]:
    return [x for a in args for x in (a if isinstance(a, tuple) else (a,))]


def _var(value: np.ndarray) -> relax.Var:
    dtype = "float32" if value.dtype == "float64" else str(value.dtype)
    return relax.Var("x", relax.TensorType(value.shape, dtype))


@pytest.mark.parametrize("reduction", ["update", "add", "mul", "min", "max"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements(reduction: str, axis: int) -> None:
    # Each place once, so that the order of writing does not tell.
    extent = X.shape[axis]
    # TVM's own code gets no more parts than one before the axis and one behind it right.
    reach = [slice(n) for n in X.shape]
    reach[axis] = slice(3)
    indices = np.argsort(RNG.standard_normal((5, 6, 4)), axis)[tuple(reach)]
    indices = np.where(RNG.random(indices.shape) < 0.5, indices, indices - extent)
    values = RNG.standard_normal(indices.shape)
    call = op.scatter_elements(_var(X), _var(indices), _var(values), axis, reduction)
    _both(call, X, indices, values)


@pytest.mark.parametrize("reduction", ["update", "add", "mul", "min", "max"])
def test_scatter_nd(reduction: str) -> None:
    indices = np.array([[0, 1], [4, 5], [2, 3]])
    values = RNG.standard_normal((3, 4))
    call = op.scatter_nd(_var(X), _var(indices), _var(values), reduction)
    _both(call, X, indices, values)


@pytest.mark.parametrize("lead", [0, 1])
def test_gather_nd(lead: int) -> None:
    indices = RNG.integers(0, 4, (5, 3, 2))
    _both(op.gather_nd(_var(X), _var(indices), lead), X, indices)


def test_index_tensor_and_index_put() -> None:
    rows, columns = np.array([[0], [3]]), np.array([1, 5, 2])
    pair = relax.Tuple([_var(rows), _var(columns)])
    _both(op.index_tensor(_var(X), pair), X, (rows, columns))
    whole = tuple(np.array(axis) for axis in ([0, 4, 0], [1, 2, 1], [3, 3, 3]))
    values = RNG.standard_normal(3)
    given = relax.Tuple([_var(index) for index in whole])
    call = op.index_put(_var(X), given, _var(values), accumulate=True)
    _both(call, X, whole, values)
