"""Options, predicates, regions and a missing package: nothing here needs TensorRT."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases.tensorrt._case import module, weights
from collage.backends.contract import Granularity
from collage.backends.contract.errors import BackendUnavailableError, TargetError
from collage.backends.contract.registry import get_backend
from collage.backends.tensorrt.library import PACKAGES, Package, find_package
from collage.backends.tensorrt.options import TensorrtOptions
from collage.backends.tensorrt.regions import accepts
from collage.backends.tensorrt.runtimes import matches, package_for, runtime_name
from collage.backends.toolchain.cuda_toolkit import compute_capability
from collage.testing.backend_cases import verdicts
from tests.backends_tests.tensorrt.support import target


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hides both packages from the import system."""

    class Hidden(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, path: Any, module: Any = None) -> None:
            if name.partition(".")[0] in PACKAGES:
                raise ModuleNotFoundError(f"No module named '{name}'", name=name)

    for name in [n for n in sys.modules if n.partition(".")[0] in PACKAGES]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Hidden(), *sys.meta_path])
    yield


def _refusal(pattern: str, mod: tvm.IRModule, **options: Any) -> str:
    """The one reason why a pattern's predicate refuses a module."""
    wanted = target(**options)
    triples = {t.name: t for t in get_backend("tensorrt").patterns(wanted)}
    answers = verdicts(triples[f"tensorrt.{pattern}"], mod["main"])
    assert answers, "does not even match"
    assert not any(answers), "accepted"
    return answers[-1].reason


def test_attributes_are_those_of_the_issue() -> None:
    given = {
        "use_fp16": True,
        "use_int8": True,
        "max_workspace_size": 1 << 30,
        "remove_no_mac_subgraphs": True,
        "timing_cache": "/somewhere/timings",
    }
    options = get_backend("tensorrt").parse_options(given)
    assert options == TensorrtOptions(**given)
    assert options.tensorrt_version == "" and not options.use_bf16 and not options.use_tf32


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"use_fp16": True, "use_bf16": True}, "exclude each other"),
        ({"max_workspace_size": -1}, "-1 bytes"),
        ({"tensorrt_version": "ten"}, "like '10.13'"),
        ({"use_fp16": 1}, "use_fp16"),
        ({"precision": "fp16"}, "valid attributes: .*remove_no_mac_subgraphs"),
    ],
)
def test_wrong_attributes_are_refused(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        get_backend("tensorrt").parse_options(attributes)


@pytest.mark.parametrize(
    ("wanted", "version", "fits"),
    [
        ("", "10.13.3.9", True),
        ("10", "10.13.3.9", True),
        ("10.13", "10.13.3.9", True),
        ("10.1", "10.13.3.9", False),
        ("10.13.4", "10.13.3.9", False),
        ("10.13.3.9.1", "10.13.3.9", False),
    ],
)
def test_version_is_compared_number_by_number(wanted: str, version: str, fits: bool) -> None:
    assert TensorrtOptions(tensorrt_version=wanted).fits_version(version) is fits


def test_backend_joins_composites_on_cuda() -> None:
    backend = get_backend("tensorrt")
    assert (backend.device, backend.granularity) == ("cuda", Granularity.GRAPH)
    assert not backend.constants_as_arguments  # type: ignore[attr-defined]


def test_table_covers_tvms_own() -> None:
    from tvm.relax.backend.contrib import tensorrt as tvms

    own = {t.name.removeprefix("tensorrt.") for t in get_backend("tensorrt").patterns(target())}
    other = {pattern[0].removeprefix("tensorrt.") for pattern in tvms._tensorrt_patterns()}
    renamed = {"transpose": "permute_dims", "concatenate": "concat", "batch_matmul": "matmul"}
    wanted = {renamed.get(name.split(".")[-1], name.split(".")[-1]) for name in other}
    assert len(wanted) > 45
    assert wanted <= own


def test_absence_is_said_with_the_line_that_mends_it(nothing_installed: None) -> None:
    found = get_backend("tensorrt").probe()
    assert not found.usable and not found.versions
    assert found.reason == "tensorrt and tensorrt_rtx not installed"
    assert found.remedy == "pip install 'collage-tvm[tensorrt]'"


def test_absence_leaves_patterns_and_refuses_regions(nothing_installed: None) -> None:
    backend = get_backend("tensorrt")
    assert len(backend.patterns(target())) > 90
    x = relax.Var("x", relax.TensorType((2, 13), "float32"))
    verdict = backend.accepts_region([op.matmul(x, weights(13, 7))], target())  # type: ignore[attr-defined]
    assert not verdict and "not installed" in verdict.reason
    with pytest.raises(BackendUnavailableError, match="pip install"):
        backend.codegen([], target(), None)  # type: ignore[attr-defined]
    with pytest.raises(BackendUnavailableError, match=r"tensorrt_rtx 1\.7\.1\.116"):
        backend.load_runtime("python:tensorrt_rtx:1.7.1.116")  # type: ignore[attr-defined]


def test_a_package_that_fails_to_import_is_named(
    nothing_installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, path: Any, module: Any = None) -> None:
            if name == "tensorrt":
                raise ImportError("libnvinfer.so.10: cannot open shared object file")

    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    package, reason = find_package()
    assert package is None
    assert "tensorrt is installed but cannot be imported: libnvinfer.so.10" in reason


@pytest.mark.parametrize(("arch", "number"), [("sm_90a", 90), ("sm_89", 89), ("sm_120f", 120)])
def test_capability_of_an_architecture(arch: str, number: int) -> None:
    assert compute_capability(arch) == number


def _operators(build: Any, shapes: Sequence[Sequence[int]]) -> list[relax.Expr]:
    mod = module([(shape, "float32") for shape in shapes], build)
    return [b.value for block in mod["main"].body.blocks for b in block.bindings]


def test_regions_without_products_are_dropped_when_asked() -> None:
    plain = _operators(lambda x: op.nn.relu(op.exp(x)), [(2, 5)])
    dense = _operators(lambda x: op.nn.relu(op.matmul(x, weights(5, 3))), [(2, 5)])
    asked = TensorrtOptions(remove_no_mac_subgraphs=True)
    assert accepts(plain, TensorrtOptions()) and accepts(dense, asked)
    verdict = accepts(plain, asked)
    assert not verdict and "multiply-accumulate" in verdict.reason


def test_int8_needs_a_quantized_model() -> None:
    dense = _operators(lambda x: op.matmul(x, weights(5, 3)), [(2, 5)])
    verdict = accepts(dense, TensorrtOptions(use_int8=True))
    assert not verdict and "quantize the model" in verdict.reason
    scale, zero = relax.const(np.float32(0.1)), relax.const(np.int8(0))
    quantized = _operators(lambda x: op.quantize(x, scale, zero, out_dtype="int8"), [(2, 5)])
    assert accepts(quantized, TensorrtOptions(use_int8=True))


_LAST = {"data_layout": "NHWC", "kernel_layout": "OHWI"}


@pytest.mark.parametrize(
    ("pattern", "inputs", "body", "because"),
    [
        ("exp", [((2, 5), "float64")], op.exp, "float64, which TensorRT does not have"),
        ("divide", [((5,), "int32"), ((5,), "int32")], op.divide, "supported: float32"),
        ("exp", [((2, 0), "float32")], op.exp, "is empty"),
        ("exp", [((1,) * 9, "float32")], op.exp, "9 dimensions, more than 8"),
        (
            "conv2d",
            [((1, 4, 8, 8), "float32"), ((4, 4, 3, 3), "float32")],
            op.nn.conv2d,
            "no constant",
        ),
        (
            "conv2d_transpose",
            [((1, 4, 8, 8), "float32")],
            lambda x: op.nn.conv2d_transpose(x, weights(4, 2, 3, 3), strides=2, output_padding=1),
            "exceeds the padding",
        ),
        (
            "max_pool2d",
            [((1, 4, 8, 8), "float32")],
            lambda x: op.nn.max_pool2d(x, (2, 2), dilation=(2, 2)),
            "dilated",
        ),
        (
            "avg_pool2d",
            [((1, 4, 8, 8), "float32")],
            lambda x: op.nn.avg_pool2d(x, (3, 3), (2, 2), ceil_mode=True, count_include_pad=True),
            "beyond the padding",
        ),
        (
            "adaptive_avg_pool2d",
            [((1, 4, 9, 9), "float32")],
            lambda x: op.nn.adaptive_avg_pool2d(x, (2, 2)),
            "uneven",
        ),
        (
            "pad",
            [((3, 5), "float32")],
            lambda x: op.nn.pad(x, (1, 1, 1, 1), "circular"),
            "supported: constant, edge, reflect",
        ),
        (
            "resize2d",
            [((1, 4, 8, 8), "float32")],
            lambda x: op.image.resize2d(
                x, (16, 16), layout="NCHW", method="nearest_neighbor", rounding_method="round"
            ),
            "mode 'round'",
        ),
        (
            "batch_norm",
            [((1, 4, 8, 8), "float32")],
            lambda x: relax.TupleGetItem(op.nn.batch_norm(x, *[weights(4)] * 4, axis=1), 0),
            "training mode",
        ),
        (
            "argmax",
            [((2, 2, 2, 2, 2), "float32")],
            lambda x: op.argmax(x, 0),
            "not one of the last four",
        ),
        (
            "take",
            [((7, 3), "float32"), ((2,), "int32")],
            lambda x, i: op.take(x, i, 0, mode="wrap"),
            "mode 'wrap'",
        ),
        (
            "attention",
            [((1, 6, 4, 8), "float32"), ((1, 6, 2, 8), "float32"), ((1, 6, 2, 8), "float32")],
            op.nn.attention,
            "heads",
        ),
        (
            "quantize",
            [((2, 5), "float32")],
            lambda x: op.quantize(
                x, relax.const(np.float32(0.1)), relax.const(np.int8(0)), out_dtype="int8"
            ),
            "set use_int8",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_refusals_name_the_reason(pattern: str, inputs: Any, body: Any, because: str) -> None:
    assert because in _refusal(pattern, module(inputs, body))


def test_asymmetric_quantization_is_refused() -> None:
    scale, zero = relax.const(np.float32(0.1)), relax.const(np.int8(3))
    mod = module([((2, 5), "float32")], lambda x: op.quantize(x, scale, zero, out_dtype="int8"))
    assert "zero point is not 0" in _refusal("quantize", mod, use_int8=True)


def _package(name: str, version: str) -> Package:
    return Package(name, version, ModuleType(name))


_HEADER = """
#define TRT_MAJOR_{edition} {major}
#define TRT_MINOR_{edition} {minor}
#define NV_TENSORRT_MAJOR TRT_MAJOR_{edition} //!< major version
#define NV_TENSORRT_MINOR TRT_MINOR_{edition}
"""


@pytest.mark.parametrize(
    ("text", "package", "fits"),
    [
        (_HEADER.format(edition="ENTERPRISE", major=10, minor=13), ("tensorrt", "10.13.3"), True),
        (_HEADER.format(edition="ENTERPRISE", major=10, minor=12), ("tensorrt", "10.13.3"), False),
        (_HEADER.format(edition="ENTERPRISE", major=1, minor=7), ("tensorrt_rtx", "1.7.1"), False),
        (_HEADER.format(edition="RTX", major=1, minor=7), ("tensorrt_rtx", "1.7.1"), True),
        (
            "#define NV_TENSORRT_MAJOR 10\n#define NV_TENSORRT_MINOR 9\n",
            ("tensorrt", "10.9.0"),
            True,
        ),
        ("", ("tensorrt", "10.9.0"), False),
    ],
)
def test_headers_must_be_of_the_package(
    text: str, package: tuple[str, str], fits: bool, tmp_path: Any
) -> None:
    header = tmp_path / "NvInferVersion.h"
    header.write_text(text)
    assert matches(header, _package(*package)) is fits


def test_no_header_is_no_match(tmp_path: Any) -> None:
    assert not matches(tmp_path / "NvInferVersion.h", _package("tensorrt", "10.9.0"))


def test_runtime_is_named_with_package_and_version() -> None:
    name = runtime_name(_package("tensorrt_rtx", "1.7.1.116"), None)
    assert name == "python:tensorrt_rtx:1.7.1.116"
    assert package_for("shim:tensorrt:10.13.3.9") is None


@pytest.mark.parametrize("name", ["", "lua:tensorrt:1", "python:numpy:2.0"])
def test_unknown_runtimes_are_refused(name: str) -> None:
    with pytest.raises(BackendUnavailableError, match="unknown TensorRT runtime"):
        package_for(name)
