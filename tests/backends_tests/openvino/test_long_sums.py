"""Instance norms of many elements behind convolutions, which OpenVINO lays out channels last."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.openvino.library import python_api
from collage.backends.openvino.problem import write_region
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.openvino.support import installed

pytestmark = installed


@pytest.mark.parametrize("shape", [(1, 2, 32, 64, 64), (2, 6, 128, 128), (1, 3, 5, 7)])
def test_instance_norms_add_in_many_sums(shape: tuple[int, ...]) -> None:
    """One by one, a volume's 131,072 were off by 1e-5, whatever OpenVINO is told of accuracy."""
    channels, rank = shape[1], len(shape) - 2
    weights = constant(channels, channels, *(1,) * rank)
    gamma, beta = constant(channels), constant(channels)
    axes = list(range(2, len(shape)))
    convolve = {2: op.nn.conv2d, 3: op.nn.conv3d}[rank]

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(convolve(x, weights))
        return emit(op.nn.instance_norm(y, gamma, beta, channel_axis=1, axes=axes))

    # In one model: a norm by itself has a plain tensor.
    function = graph([shape], body)["main"].with_attr("global_symbol", "main")
    region = write_region(function)
    settings = {"INFERENCE_PRECISION_HINT": "f32", "EXECUTION_MODE_HINT": "ACCURACY"}
    settings |= {"INFERENCE_NUM_THREADS": "1"}
    compiled = python_api().Core().compile_model(region.model, "CPU", settings)
    x = (np.random.default_rng().standard_normal(shape) + 0.5).astype(np.float32)
    found = compiled([x])[0]
    kernel = weights.value.numpy().astype(np.float64).reshape(channels, channels)
    y = np.einsum("oc,nc...->no...", kernel, x.astype(np.float64))
    y -= y.mean(tuple(axes), keepdims=True)
    y /= np.sqrt(y.var(tuple(axes), keepdims=True) + 1e-5)
    wide = (1, channels) + (1,) * rank
    wanted = y * gamma.value.numpy().reshape(wide) + beta.value.numpy().reshape(wide)
    assert np.sqrt(np.mean((found - wanted) ** 2) / np.mean(wanted**2)) < 1e-6
