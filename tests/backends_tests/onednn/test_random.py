"""Random graphs as oneDNN regions: aliasing of memory must hold for any mix of operators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.cost.reference import DEFAULT_RTOL, evaluate, largest_error
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.onednn.regions import Regions

GRAPH_COUNT = 40
MAX_CHANNELS = 96


class RandomGraph:
    """Grows a graph over pictures of one size; every step draws operands from all values so far."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.batch, self.height, self.width = (
            int(v) for v in self.rng.integers([1, 4, 4], [3, 9, 9])
        )
        self.channels = int(self.rng.choice([3, 16, 20]))

    def module(self) -> tvm.IRModule:
        shape = (self.batch, self.channels, self.height, self.width)
        return graph([shape], self._body)

    def _body(self, emit: Emit, x: relax.Expr) -> relax.Expr:
        self.emit = emit
        self.values = [x]
        self.read: set[relax.Expr] = set()
        steps: list[Callable[[], relax.Expr | None]] = [
            self._conv, self._conv, self._conv, self._eltwise, self._eltwise, self._add, self._add,
            self._concat, self._concat, self._scale, self._pool, self._slice, self._round_trip,
            self._gate, self._transposed,
        ]  # fmt: skip
        for _ in range(int(self.rng.integers(5, 14))):
            made = steps[int(self.rng.integers(len(steps)))]()
            if made is not None:
                self.values.append(made)
        made = self.values[1:] or [emit(op.nn.relu(x))]
        # What nobody reads is returned, so that nothing is dead, and a few values that are read on.
        returned = [value for value in made if value not in self.read]
        returned += [value for value in made if value in self.read and self.rng.uniform() < 0.15]
        # A step that gave up may have read the last value.
        returned = returned or made[-1:]
        return relax.Tuple(returned) if len(returned) > 1 else returned[0]

    def _pick(self) -> relax.Expr:
        # Late values are likelier, so that chains grow.
        index = int(len(self.values) * self.rng.uniform() ** 0.5)
        value = self.values[min(index, len(self.values) - 1)]
        self.read.add(value)
        return value

    def _width(self, value: relax.Expr) -> int:
        return int(value.ty.shape[1])

    def _data(self, *shape: int, scale: float = 1.0) -> relax.Expr:
        return constant(*shape, rng=self.rng, scale=scale)

    def _conv(self) -> relax.Expr:
        x = self._pick()
        size, out = int(self.rng.choice([1, 3])), int(self.rng.choice([5, 8, 16, 20, 32]))
        into = self._width(x)
        weights = self._data(out, into, size, size, scale=(into * size * size) ** -0.5)
        y = self.emit(op.nn.conv2d(x, weights, padding=size // 2))
        return self.emit(op.add(y, self._data(1, out, 1, 1))) if self.rng.uniform() < 0.6 else y

    def _eltwise(self) -> relax.Expr:
        functions = [op.nn.relu, op.sigmoid, op.tanh, op.nn.silu, lambda v: op.clip(v, -0.5, 1.0)]
        return self.emit(functions[int(self.rng.integers(len(functions)))](self._pick()))

    def _add(self) -> relax.Expr | None:
        x = self._pick()
        same = [v for v in self.values if self._width(v) == self._width(x)]
        other = same[int(self.rng.integers(len(same)))]
        self.read.add(other)
        return self.emit(op.add(x, other))

    def _concat(self) -> relax.Expr | None:
        parts = [self._pick() for _ in range(int(self.rng.integers(2, 4)))]
        if sum(self._width(part) for part in parts) > MAX_CHANNELS:
            return None
        return self.emit(op.concat(parts, axis=1))

    def _scale(self) -> relax.Expr:
        x = self._pick()
        shape = (1, self._width(x), 1, 1)
        return self.emit(op.add(self.emit(op.multiply(x, self._data(*shape))), self._data(*shape)))

    def _pool(self) -> relax.Expr:
        pool = op.nn.max_pool2d if self.rng.uniform() < 0.5 else op.nn.avg_pool2d
        return self.emit(pool(self._pick(), (3, 3), (1, 1), (1, 1)))

    def _slice(self) -> relax.Expr | None:
        x = self._pick()
        width = self._width(x)
        if width < 4:
            return None
        begin = int(self.rng.choice([0, 1, 16 % width, width // 2]))
        end = int(self.rng.choice([width, begin + 1 + (width - begin) // 2]))
        return self.emit(op.strided_slice(x, [1], [begin], [min(end, width)]))

    def _round_trip(self) -> relax.Expr:
        """To a matrix, through a product, and back."""
        x = self._pick()
        pixels = self.height * self.width
        flat = self.emit(op.reshape(x, (self.batch, self._width(x), pixels)))
        y = self.emit(op.matmul(flat, self._data(pixels, pixels, scale=pixels**-0.5)))
        return self.emit(op.reshape(y, (self.batch, self._width(x), self.height, self.width)))

    def _gate(self) -> relax.Expr:
        x = self._pick()
        return self.emit(op.multiply(x, self.emit(op.mean(x, [2, 3], keepdims=True))))

    def _transposed(self) -> relax.Expr:
        """Something done in another order of dimensions."""
        x = self.emit(op.permute_dims(self._pick(), [0, 2, 3, 1]))
        return self.emit(op.permute_dims(self.emit(op.nn.relu(x)), [0, 3, 1, 2]))


@pytest.fixture(scope="module", params=["auto", "nhwc"])
def compiled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, tvm.IRModule], Regions]:
    first = int(np.random.default_rng().integers(1 << 30))
    graphs = {f"seed{s}": RandomGraph(s).module() for s in range(first, first + GRAPH_COUNT)}
    folder: Path = tmp_path_factory.mktemp(f"random_{request.param}")
    return graphs, Regions(graphs, folder, {"layout": request.param})


def test_random_graphs_agree_with_the_reference(
    compiled: tuple[dict[str, tvm.IRModule], Regions],
) -> None:
    graphs, library = compiled
    rng = np.random.default_rng()
    wrong = []
    for name, mod in graphs.items():
        shape = [int(extent) for extent in mod["main"].params[0].ty.shape]
        x = rng.standard_normal(shape).astype(np.float32)
        expected = evaluate(mod, [x])
        for call in range(2):
            actual = library.run(name, [x])
            for index, (got, wanted) in enumerate(zip(actual, expected, strict=True)):
                error = largest_error(got, wanted)
                if not error < DEFAULT_RTOL:
                    wrong.append(f"{name}: output {index} of call {call} is off by {error:.1e}")
    assert not wrong, "\n".join(wrong)
