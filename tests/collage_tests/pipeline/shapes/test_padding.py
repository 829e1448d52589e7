"""Padding: what is proven is held against numpy on other data; what mixes slices is not proven."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.relax.kept_whole.search import searchsorted
from collage.backends.relax.recurrent import recurrent
from collage.backends.relax.trees import Branches, packed, tree_ensemble
from collage.bundle.calling.dispatch import cut, pad
from collage.cost.reference import evaluate
from collage.importers import ImportedModel, load_model
from collage.pipeline.shapes.operands import UnprovenError
from collage.pipeline.shapes.padding import padded_axes
from collage.testing import graph

Body = Callable[..., relax.Expr]

LARGE, SMALL = 7, 5
"""No other extent in these graphs."""


def _weights(*shape: int) -> relax.Expr:
    # The same at every import, as a model's are.
    return relax.const(np.random.default_rng(11).standard_normal(shape).astype("float32"))


def _image(n: int) -> list[tuple[int, ...]]:
    return [(n, 4, 6, 6)]


def _rows(n: int) -> list[tuple[int, ...]]:
    return [(n, 8)]


def _conv_net(emit, x):
    y = emit(op.nn.conv2d(x, _weights(8, 4, 3, 3), padding=1))
    y = emit(op.nn.relu(emit(op.add(y, _weights(1, 8, 1, 1)))))
    y = emit(op.nn.max_pool2d(y, pool_size=(2, 2), strides=(2, 2)))
    y = emit(op.nn.adaptive_avg_pool2d(y, (1, 1)))
    n = int(x.ty.shape.values[0])
    y = emit(op.reshape(y, (n, 8)))
    return op.nn.softmax(emit(op.matmul(y, _weights(8, 3))), axis=-1)


def _attention(emit, x):
    """Heads of 2 rows of 3, of which each element of the batch has its own."""
    n = int(x.ty.shape.values[0])
    y = emit(op.matmul(emit(op.reshape(x, (n, 12, 12))), _weights(12, 12)))
    heads = emit(op.permute_dims(emit(op.reshape(y, (n, 12, 2, 6))), [0, 2, 1, 3]))
    scores = emit(op.matmul(heads, emit(op.permute_dims(heads, [0, 1, 3, 2]))))
    mixed = emit(op.matmul(emit(op.nn.softmax(scores, axis=-1)), heads))
    back = emit(op.permute_dims(mixed, [0, 2, 1, 3]))
    return op.add(emit(op.reshape(back, (n, 12, 12))), emit(op.reshape(x, (n, 12, 12))))


def _turned(emit, x):
    """The batch is the last axis for a while."""
    y = emit(op.permute_dims(x, [1, 0]))
    y = emit(op.matmul(_weights(3, 8), y))
    return op.permute_dims(emit(op.nn.softmax(y, axis=0)), [1, 0])


def _two_parts(emit, x):
    n = int(x.ty.shape.values[0])
    both = emit(op.split(x, 2, axis=1))
    joined = emit(op.concat([emit(relax.TupleGetItem(both, i)) for i in (1, 0)], axis=1))
    zeros = emit(op.zeros((n, 8), "float32"))
    state = relax.const(np.ones((n, 8), "float32"))
    y = emit(op.add(emit(op.add(joined, zeros)), state))
    y = emit(op.strided_slice(y, [1], [1], [7], [2]))
    total = emit(op.sum(y, axis=[1]))
    padded = emit(op.nn.pad(x, [0, 0, 1, 1]))
    return relax.Tuple([total, padded, emit(op.expand_dims(total, [0]))])


def _table(emit, x):
    """A row of a table for each of a slice's indices."""
    indices = emit(op.astype(emit(op.clip(x, 0, 3)), "int64"))
    return op.nn.layer_norm(
        emit(op.take(_weights(4, 6), indices, axis=0)), _weights(6), _weights(6), axes=[-1]
    )


def _indices(emit, x, most):
    return emit(op.astype(emit(op.clip(x, 0, most)), "int64"))


def _flattened(emit, x):
    """All slices' rows of a table side by side, as PyTorch's embeddings import."""
    n = int(x.ty.shape.values[0])
    flat = emit(op.reshape(_indices(emit, x, 3), (n * 8,)))
    rows = emit(op.nn.relu(emit(op.take(_weights(4, 6), flat, axis=0))))
    return op.nn.layer_norm(emit(op.reshape(rows, (n, 8, 6))), _weights(6), _weights(6), axes=[-1])


def _wrapped(emit, x):
    """A table's indices may count from its end, as ONNX's do: the table's shape is asked."""
    table = _weights(4, 6)
    indices = emit(op.subtract(_indices(emit, x, 3), relax.const(2, "int64")))
    shape = emit(op.shape_to_tensor(emit(op.shape_of(table))))
    count = emit(op.take(shape, relax.const(0, "int64"), axis=0))
    below = emit(op.less(indices, relax.const(0, "int64")))
    return op.take(table, emit(op.where(below, emit(op.add(indices, count)), indices)), axis=0)


def _numbered(emit, x):
    """Each slice's elements by its own number, as PyTorch's masks import."""
    n = int(x.ty.shape.values[0])
    own = emit(op.expand_dims(emit(op.arange(0, n, 1, "int64")), [1]))
    columns = relax.const(np.array([[7, 0, 3]], "int64"))
    found = emit(op.index_tensor(x, relax.Tuple([own, columns])))
    places = relax.const(np.arange(8 * n, dtype="int64").reshape(n, 8)[:, ::-1].copy())
    turned = emit(op.take(emit(op.reshape(x, (8 * n, 1))), places, axis=0))
    return relax.Tuple([found, turned])


def _lstm(x):
    """Over steps of a batch."""
    zeros = relax.const(np.zeros((1, int(x.ty.shape.values[1]), 3), "float32"))
    return recurrent("lstm", "forward", [x, _weights(1, 3, 12), zeros, zeros])


def _sequences(emit, x):
    whole = emit(_lstm(x))
    parts = [emit(relax.TupleGetItem(whole, i)) for i in range(3)]
    return relax.Tuple([emit(op.nn.relu(part)) for part in parts])


def _trees(emit, x):
    """Two leaves: which, the last feature says."""
    links = np.array([[1, 2], [1, 1], [2, 2]]).T
    nodes = Branches(np.array([7, 0, 0]), np.zeros(3, "float32"), *links)
    table = packed(nodes, np.array([0]), values=np.array([0, -1, 1], "float32"))
    return tree_ensemble([x, *(relax.const(a, str(a.dtype)) for a in table)], 1)


def _searched(emit, rows, values):
    return searchsorted(rows, values, right=False, dtype="int64")


def _in_one_row(emit, values):
    return searchsorted(
        relax.const(np.arange(9, dtype="float32")), values, right=True, dtype="int32"
    )


KEPT_APART: dict[str, tuple[Body, Callable[[int], list[tuple[int, ...]]]]] = {
    "conv_net": (_conv_net, _image),
    "attention": (_attention, _image),
    "turned": (_turned, _rows),
    "two_parts": (_two_parts, _rows),
    "table": (_table, _rows),
    "flattened": (_flattened, _rows),
    "wrapped": (_wrapped, _rows),
    "numbered": (_numbered, _rows),
    "trees": (_trees, _rows),
    "searched in their rows": (_searched, lambda n: [(n, 9), (n, 2)]),
    "searched in the same rows": (_searched, lambda n: [(3, 9), (3, n)]),
    "searched in one row": (_in_one_row, lambda n: [(n, 2)]),
    "searched for in one row": (_in_one_row, lambda n: [(2, n)]),
    "sequences": (_sequences, lambda n: [(4, n, 12)]),
    "outer": (lambda emit, x, y: op.matmul(x, y), lambda n: [(n, 8), (8, 9)]),
    "products": (lambda emit, x, y: op.matmul(x, y), lambda n: [(n, 2, 8), (n, 8, 3)]),
    "several": (lambda emit, x, y: op.multiply(x, y), lambda n: [(n, 8), (n, 1)]),
}

MIXED: dict[str, tuple[Body, Callable[[int], list[tuple[int, ...]]]]] = {
    "softmax": (lambda emit, x: op.nn.softmax(x, axis=0), _rows),
    "sum": (lambda emit, x: op.sum(x, axis=[0]), _rows),
    "sum of all": (lambda emit, x: op.sum(x), _rows),
    "cumsum": (lambda emit, x: op.cumsum(x, axis=0), _rows),
    "flip": (lambda emit, x: op.flip(x, axis=0), _rows),
    "searched among": (_searched, lambda n: [(3, n), (3, 2)]),
    "searched among and for": (_searched, lambda n: [(3, n), (3, n)]),
    "trees over features": (
        lambda emit, x: _trees(emit, emit(op.permute_dims(emit(op.concat([x] * 8, 1)), [1, 0]))),
        _rows,
    ),
    "steps": (lambda emit, x: emit(_lstm(x))[0], lambda n: [(n, 2, 12)]),
    "gram": (lambda emit, x: op.matmul(emit(op.permute_dims(x, [1, 0])), x), _rows),
    "all against all": (lambda emit, x: op.matmul(x, emit(op.permute_dims(x, [1, 0]))), _rows),
    "joined": (lambda emit, x: op.concat([x, x], axis=0), _rows),
    "first": (lambda emit, x: op.strided_slice(x, [0], [0], [1]), _rows),
    "pad": (lambda emit, x: op.nn.pad(x, [1, 0, 0, 0]), _rows),
    "last": (
        lambda emit, x: op.take(x, relax.const(np.array([-1]), "int64"), axis=0, mode="wrap"),
        _rows,
    ),
    "looked up": (
        lambda emit, x: op.take(
            x, emit(op.strided_slice(_indices(emit, x, 3), [1], [0], [1])), axis=0
        ),
        _rows,
    ),
    "in another's half": (
        lambda emit, x: op.gather_elements(
            emit(op.reshape(x, (2 * int(x.ty.shape.values[0]), 4))),
            emit(op.strided_slice(_indices(emit, x, 3), [1], [0], [4])),
            axis=1,
        ),
        _rows,
    ),
    "added its shape": (
        lambda emit, x: op.add(
            emit(op.strided_slice(x, [1], [0], [2])),
            emit(op.astype(emit(op.shape_to_tensor(emit(op.shape_of(x)))), "float32")),
        ),
        _rows,
    ),
    "folded": (lambda emit, x: op.reshape(x, (-1,)), _rows),
    "interleaved": (
        lambda emit, x: op.reshape(emit(op.permute_dims(x, [1, 0])), (x.ty.shape.values[0], 8)),
        _rows,
    ),
    "rows of rows": (
        lambda emit, x: op.add(emit(op.expand_dims(x, [0])), emit(op.expand_dims(x, [1]))),
        _rows,
    ),
    "scaled by the extent": (
        lambda emit, x: op.divide(x, relax.const(float(int(x.ty.shape.values[0])))),
        _rows,
    ),
    "numbered from the end": (
        lambda emit, x: op.add(
            x, relax.const(np.arange(int(x.ty.shape.values[0]), 0, -1, "float32")[:, None])
        ),
        _rows,
    ),
    "batch norm": (
        lambda emit, x: emit(
            relax.TupleGetItem(
                emit(op.nn.batch_norm(x, *[_weights(4)] * 4, axis=1, training=True)), 0
            )
        ),
        _image,
    ),
    "convolved": (
        lambda emit, x: op.nn.conv2d(x, _weights(2, 4, 3, 3), padding=1),
        lambda n: [(2, 4, n, 6)],
    ),
    "unknown": (lambda emit, x: op.nn.softmax(emit(op.tril(x)), axis=1), _rows),
    "another extent": (lambda emit, x, y: op.exp(x), lambda n: [(n, 8), (n + 1, 8)]),
}


def _models(
    body: Body, shapes: Callable[[int], list[tuple[int, ...]]]
) -> tuple[ImportedModel, ImportedModel]:
    large, small = (load_model(graph(shapes(n), body)) for n in (LARGE, SMALL))
    return large, small


@pytest.mark.parametrize("name", KEPT_APART)
def test_what_is_proven_is_so(name: str) -> None:
    large, small = _models(*KEPT_APART[name])
    axes = padded_axes(large, small, (LARGE, SMALL))
    rng = np.random.default_rng()
    inputs = [rng.standard_normal(info.shape).astype(info.dtype) for info in small.inputs]
    padded = list(inputs)
    for index, axis in axes.inputs:
        padded[index] = pad(inputs[index], axis, LARGE)
    outputs = evaluate(large.mod, padded)
    for index, axis in axes.outputs:
        outputs[index] = cut(outputs[index], axis, SMALL)
    for found, expected in zip(outputs, evaluate(small.mod, inputs), strict=True):
        # Numpy's products round another way for another shape; nothing larger than 100 is summed.
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", MIXED)
def test_what_mixes_slices_is_not_proven(name: str) -> None:
    with pytest.raises(UnprovenError):
        padded_axes(*_models(*MIXED[name]), (LARGE, SMALL))


def test_a_network_that_changes_with_the_extent_is_not_proven() -> None:
    def body(emit: Callable[..., relax.Var], x: relax.Var) -> relax.Expr:
        return op.exp(x) if int(x.ty.shape.values[0]) > SMALL else op.abs(x)

    with pytest.raises(UnprovenError, match="not known"):
        padded_axes(*_models(body, _rows), (LARGE, SMALL))


@pytest.mark.parametrize("larger", [(LARGE, 2, 4), (2, 4 * LARGE), (2, LARGE, 2, 2)])
def test_a_rank_that_changes_with_the_extent_is_not_proven(larger: tuple[int, ...]) -> None:
    def body(emit: Callable[..., relax.Var], x: relax.Var) -> relax.Expr:
        n = int(x.ty.shape.values[0])
        other = emit(op.reshape(x, larger if n == LARGE else (8 * n,)))
        return op.reshape(emit(op.exp(other)), (n, 8))

    with pytest.raises(UnprovenError, match="reshape gives"):
        padded_axes(*_models(body, _rows), (LARGE, SMALL))


def test_functions_of_the_module_are_not_looked_into() -> None:
    mod = relax.transform.LegalizeOps()(graph(_rows(LARGE), lambda emit, x: op.exp(x)))
    other = relax.transform.LegalizeOps()(graph(_rows(SMALL), lambda emit, x: op.exp(x)))
    assert isinstance(mod, tvm.IRModule)
    with pytest.raises(UnprovenError, match="call_tir it is not known"):
        padded_axes(load_model(mod), load_model(other), (LARGE, SMALL))
