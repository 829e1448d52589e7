"""Slopes by channel: behind convolutions of every layout, between others, and by themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.onednn.fuse import optimize
from collage.backends.onednn.graph import Binary, OpKind
from collage.backends.onednn.partition import import_function
from collage.backends.relax.static_shape import static_shape
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.onednn.region_graphs import conv
from tests.backends_tests.onednn.regions import Regions, regions


def _prelu(emit: Emit, x: relax.Expr) -> relax.Expr:
    return emit(op.nn.prelu(x, constant(static_shape(x)[1]), axis=1))


def _fsrcnn(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Channels that fill a block up, and others; a transpose by phases behind them."""
    y = _prelu(emit, conv(emit, x, 56, 3))
    for given, made, size in ((56, 12, 1), (12, 16, 3), (16, 32, 1)):
        y = _prelu(emit, conv(emit, y, made, given, size=size))
    up = op.nn.conv2d_transpose(y, constant(32, 1, 9, 9), strides=3, padding=4, output_padding=2)
    return _prelu(emit, emit(up))


def _residual(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Behind a sum, and where its operand is read by others too."""
    y = emit(op.add(conv(emit, x, 3, 3), x))
    z = _prelu(emit, y)
    return emit(op.add(emit(op.tanh(conv(emit, z, 3, 3))), y))


def _depthwise(emit: Emit, x: relax.Expr) -> relax.Expr:
    y = _prelu(emit, conv(emit, x, 32, 3))
    y = emit(op.nn.conv2d(y, constant(32, 1, 3, 3), padding=1, groups=32))
    return emit(op.multiply(_prelu(emit, y), constant(1, 32, 1, 1)))


def _plain(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Rows, a line's channels and a volume's, no product before them."""
    rows = _prelu(emit, emit(op.reshape(x, (6, 72))))
    line = _prelu(emit, emit(op.permute_dims(emit(op.reshape(x, (2, 72, 3))), [0, 2, 1])))
    volume = _prelu(emit, emit(op.exp(emit(op.reshape(x, (2, 3, 2, 4, 9))))))
    return relax.Tuple([rows, line, volume])


def _dense(emit: Emit, x: relax.Expr) -> relax.Expr:
    y = emit(op.matmul(emit(op.reshape(x, (6, 72))), constant(72, 20)))
    return _prelu(emit, emit(op.add(y, constant(20))))


GRAPHS = (_fsrcnn, _residual, _depthwise, _plain, _dense)
SHAPE = (2, 3, 8, 9)


@pytest.fixture(scope="module", params=["auto", "blocked", "nhwc", "plain"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Regions:
    graphs = {make.__name__.strip("_"): graph([SHAPE], make) for make in GRAPHS}
    folder = tmp_path_factory.mktemp(f"prelu_{request.param}")
    return Regions(graphs, folder, {"layout": request.param})


@pytest.mark.parametrize("make", GRAPHS)
def test_as_the_reference(compiled: Regions, make: Callable[..., relax.Expr]) -> None:
    compiled.require_reference(make.__name__.strip("_"))


def test_convolutions_take_it_along(compiled: Regions) -> None:
    # One region for all of it.
    (region,) = (
        function
        for function in regions(compiled.module)
        if str(function.attrs["global_symbol"]).startswith("fsrcnn")
    )
    made = import_function(region)
    optimize(made)
    kinds = [node.kind for node in made.nodes if node.kind is not OpKind.RESHAPE]
    assert kinds == [OpKind.CONV] * 4 + [OpKind.DECONV]
    last = [node.post_ops[-1] for node in made.nodes if node.post_ops]
    assert all(p.algorithm == Binary.PRELU for p in last if p.tensor is not None)
