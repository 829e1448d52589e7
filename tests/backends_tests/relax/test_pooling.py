"""How far windows reach, by hand-computed cases."""

from __future__ import annotations

import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.relax.calls.pooling import PoolPadding


def pool(shape: tuple[int, ...], layout: str, **attrs: object) -> relax.Call:
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    call: relax.Call = relax.BlockBuilder().normalize(op.nn.avg_pool2d(x, layout=layout, **attrs))
    return call


@pytest.mark.parametrize(
    ("size", "attrs", "reached"),
    [
        (8, {"pool_size": (2, 2), "strides": (2, 2)}, 0),
        (7, {"pool_size": (2, 2), "strides": (2, 2)}, -1),
        (7, {"pool_size": (2, 2), "strides": (2, 2), "ceil_mode": True}, 1),
        (7, {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1)}, 1),
        (9, {"pool_size": (3, 3), "strides": (2, 2), "dilation": (2, 2)}, 0),
    ],
)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_windows_reach_as_far(
    size: int, attrs: dict[str, object], reached: int, layout: str
) -> None:
    shape = (1, 4, size, size) if layout == "NCHW" else (1, size, size, 4)
    padding = PoolPadding.of(pool(shape, layout, **attrs))
    assert padding.reached == [reached, reached]
    assert padding.exceeded == (reached > padding.after[0])
