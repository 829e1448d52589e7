"""Regions as onnxruntime's models: constants, outputs, what is refused, blocks of channels."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import numpy as np
import onnx
import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.compile import external_functions
from collage.backends.contract import BuildContext
from collage.backends.contract.errors import BackendUnavailableError, CodegenError
from collage.backends.onnxruntime.codegen import compile_functions
from collage.backends.onnxruntime.library import find_installation
from collage.backends.onnxruntime.problem import write_region
from collage.backends.toolchain.shared_bytes import SharedBytes
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.whole_regions.networks import error_as_one_region
from tests.backends_tests.whole_regions.regions import Regions

REGIONS = Regions("onnxruntime")
pytestmark = REGIONS.installed


def test_large_constants_are_read_from_memory_and_stored_once(context: BuildContext) -> None:
    """Of 4 MB, which are unmapped when they are freed: the binding keeps nothing alive."""
    weights = constant(1024, 1024, scale=1 / 32)
    graphs = {
        name: graph([(3, 1024)], lambda emit, x, f=body: f(emit(op.matmul(x, weights))))
        for name, body in (("relu", op.nn.relu), ("tanh", op.tanh))
    }
    library = REGIONS.library(graphs, context)
    x = np.random.default_rng().standard_normal((3, 1024)).astype(np.float32)
    product = x @ weights.value.numpy()
    for name, wanted in (("relu", np.maximum(product, 0)), ("tanh", np.tanh(product))):
        np.testing.assert_allclose(library.run(name, [x])[0], wanted, atol=1e-4)
    assert library.path.stat().st_size < 2 * 4 * 1024**2


def test_equal_regions_are_equal_bytes() -> None:
    weights = constant(8, 8)
    mod = graph([(3, 8)], lambda emit, x: op.nn.relu(emit(op.matmul(x, weights))))
    partitioned = REGIONS.partitioned(mod, REGIONS.target())
    (function, *_) = external_functions(partitioned, REGIONS.backend())
    first, second = (write_region(function, SharedBytes()).model for _ in range(2))
    assert first == second


def test_results_may_be_one_tensor_twice_an_input_or_a_constant() -> None:
    """Each is an output of its own; onnxruntime wants values that nodes make."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(op.exp(x))
        return relax.Tuple([y, x, y, relax.const(np.float32([1, 2])), emit(op.multiply(y, x))])

    function = graph([(3, 4)], body)["main"].with_attr("global_symbol", "main")
    region = write_region(function, SharedBytes())
    model = onnx.load_from_string(region.model)
    import onnxruntime

    session = onnxruntime.InferenceSession(region.model, providers=["CPUExecutionProvider"])
    x = np.random.default_rng().standard_normal((3, 4)).astype(np.float32)
    found = session.run([value.name for value in model.graph.output], {"i0": x})
    for one, wanted in zip(found, (np.exp(x), x, np.exp(x), [1, 2], np.exp(x) * x), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-6)


def test_channels_first_throughout_where_the_target_says_so(context: BuildContext) -> None:
    kind = {"kind": "onnxruntime", "blocked": False}
    assert error_as_one_region("resnet", kind, context) < 2e-5


def _function(result: object) -> relax.Function:
    x = relax.Var("x", relax.TensorType((3, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("refused", [x], attrs={"global_symbol": "refused"}):
        builder.emit_func_output(builder.emit(result(x)))  # type: ignore[operator]
    return builder.get()["refused"]


@pytest.mark.parametrize(
    "result, message",
    [
        (op.sort, r"relax\.sort is not supported"),
        (lambda x: op.astype(x, "float16"), "no dtype float16"),
        # Its kernel has no truth values.
        (
            lambda x: op.where(op.greater(x, x), op.less(x, x), op.greater(x, x)),
            "NOT_IMPLEMENTED|Could not find an implementation",
        ),
    ],
)
def test_what_is_refused_is_an_error_that_says_why(
    result: object, message: str, context: BuildContext
) -> None:
    # Regions that the patterns would not have let through.
    with pytest.raises(CodegenError, match=message) as caught:
        compile_functions(
            [_function(result)], REGIONS.target().options, find_installation(), context
        )
    assert caught.value.value == "refused"


def test_an_old_package_or_one_without_the_library_is_not_usable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = metadata.distribution("onnxruntime")

    class Other:
        def __init__(self, version: str) -> None:
            self.version = version

        def locate_file(self, path: str) -> Path:
            return tmp_path / path

    for other, message in ((Other("1.19.2"), "too old"), (Other(here.version), "0 files")):
        monkeypatch.setattr(metadata, "distribution", lambda name, other=other: other)
        with pytest.raises(BackendUnavailableError, match=message):
            find_installation()
