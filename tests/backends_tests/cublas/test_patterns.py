"""What the cuBLAS backend accepts and refuses, and why; its options; what it says of itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases.cublas._products import Chain, convolution, dense, product
from collage.backends.contract import BackendTarget, Granularity
from collage.backends.contract.errors import BackendUnavailableError, TargetError
from collage.backends.contract.registry import get_backend
from collage.backends.cublas import library as cublas
from collage.backends.cublas.backend import CublasBackend
from collage.backends.cublas.options import CublasOptions
from collage.backends.cublas.patterns import kinds, pattern_table
from collage.backends.toolchain.cuda_toolkit import find_library
from collage.testing.backend_cases import verdicts
from collage.testing.graphs import Emit, constant, graph

NHWC = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}


def reasons(name: str, mod: tvm.IRModule, **options: object) -> list[str]:
    """A triple's answers in a module: an empty text for yes."""
    (triple,) = [t for t in pattern_table(CublasOptions(**options)) if t.name == name]  # type: ignore[arg-type]
    return ["" if v else v.reason for v in verdicts(triple, mod["main"])]


def matmul_of(
    left: tuple[int, ...], right: tuple[int, ...], dtype: str = "float16"
) -> tvm.IRModule:
    return graph([left, right], lambda emit, a, b: op.matmul(a, b), dtype)


def after(
    shape: tuple[int, ...], columns: int, step: Callable[[Emit, relax.Var], relax.Expr]
) -> tvm.IRModule:
    """A dense layer and one more operator."""

    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        return step(emit, emit(op.matmul(x, constant(shape[-1], columns))))

    return graph([shape], body)


def conv(
    x: tuple[int, ...],
    weights: tuple[int, ...],
    layouts: dict[str, str] | None = None,
    **attrs: object,
) -> tvm.IRModule:
    given = {**(NHWC if layouts is None else layouts), **attrs}
    return graph([x], lambda emit, x: op.nn.conv2d(x, constant(*weights), **given))


REFUSED = {
    "integers": ("cublas.matmul", matmul_of((4, 8), (8, 6), "int8"), "dtype int8"),
    "double": ("cublas.matmul", matmul_of((4, 8), (8, 6), "float64"), "dtype float64"),
    "empty": ("cublas.matmul", matmul_of((0, 8), (8, 6)), "empty"),
    "vector": ("cublas.matmul", matmul_of((8,), (8, 6)), "vector"),
    "two batch strides": ("cublas.matmul", matmul_of((2, 1, 4, 8), (1, 3, 8, 6)), "one stride"),
    "widened result": (
        "cublas.matmul",
        graph([(4, 8), (8, 6)], lambda e, a, b: op.matmul(a, b, out_dtype="float32"), "float16"),
        "float16, the result float32",
    ),
    "one weight": (
        "cublas.matmul",
        graph([(4, 1)], lambda emit, x: op.matmul(x, constant(1, 1))),
        "constant of one element",
    ),
    "scalar bias": (
        "cublas.matmul_bias",
        after((4, 8), 6, lambda emit, y: op.add(y, constant(1))),
        "constant of one element",
    ),
    "bias on rows": (
        "cublas.matmul_bias",
        after((4, 8), 6, lambda emit, y: op.add(y, constant(4, 1))),
        "per channel",
    ),
    "bias of a square on rows": (
        "cublas.matmul_bias",
        after((6, 8), 6, lambda emit, y: op.add(y, constant(6, 1))),
        "per channel",
    ),
    "bias as large as the result": (
        "cublas.matmul_bias",
        after((4, 8), 6, lambda emit, y: op.add(y, constant(4, 6))),
        "per channel",
    ),
    "broadcast residual": (
        "cublas.matmul_residual",
        graph([(4, 8), (1, 6)], lambda emit, x, r: op.add(emit(op.matmul(x, constant(8, 6))), r)),
        "broadcast",
    ),
    "exact gelu": (
        "cublas.matmul_gelu",
        dense((4, 8), 6, Chain(activation="gelu"), "float32", seed=0),
        "tanh approximation",
    ),
    "exact gelu after a bias": (
        "cublas.matmul_bias_gelu",
        dense((4, 8), 6, Chain((6,), activation="gelu"), "float16", seed=0),
        "approximate_gelu",
    ),
    "exact gelu of a convolution": (
        "cublas.conv2d_1x1_gelu",
        convolution((1, 3, 3, 4), 6, Chain(activation="gelu"), "float16", seed=0),
        "approximate_gelu",
    ),
    "scattered heads": (
        "cublas.matmul_permuted_lhs",
        product((2, 24, 4, 40), (2, 4, 40, 16), "float16", lhs_axes=[0, 2, 1, 3]),
        "one stride",
    ),
    "scattered matrix": (
        "cublas.matmul_permuted_lhs",
        product((3, 2, 7, 5), (2, 5, 3, 4), "float16", lhs_axes=[1, 3, 2, 0]),
        "stride",
    ),
    "kernel of 3": ("cublas.conv2d_1x1", conv((1, 8, 8, 4), (6, 3, 3, 4)), "not 1x1"),
    "stride of 2": ("cublas.conv2d_1x1", conv((1, 8, 8, 4), (6, 1, 1, 4), strides=2), "strides"),
    "padding": ("cublas.conv2d_1x1", conv((1, 8, 8, 4), (6, 1, 1, 4), padding=1), "padding"),
    "groups": ("cublas.conv2d_1x1", conv((1, 8, 8, 4), (6, 1, 1, 2), groups=2), "2 groups"),
    "channels first": ("cublas.conv2d_1x1", conv((1, 4, 8, 8), (6, 4, 1, 1), {}), "NCHW"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals_name_their_reason(what: str) -> None:
    name, mod, because = REFUSED[what]
    answers = reasons(name, mod)
    assert answers, "the pattern did not match at all"
    assert all(because in answer for answer in answers), answers


ACCEPTED = {
    "weights as input": ("cublas.matmul", matmul_of((2, 7, 8), (8, 6))),
    "shared left operand": ("cublas.matmul", matmul_of((7, 8), (3, 8, 6))),
    "bfloat16": ("cublas.matmul", matmul_of((3, 7, 8), (3, 8, 6), "bfloat16")),
    "bias of full rank": (
        "cublas.matmul_bias",
        after((2, 4, 8), 6, lambda emit, y: op.add(y, constant(1, 1, 6))),
    ),
    "bias on the left": (
        "cublas.matmul_bias",
        after((4, 8), 6, lambda emit, y: op.add(constant(6), y)),
    ),
    "constant residual": (
        "cublas.matmul_residual",
        after((4, 8), 6, lambda emit, y: op.add(y, constant(4, 6))),
    ),
    "residual on the left": (
        "cublas.matmul_residual",
        graph([(4, 8), (4, 6)], lambda emit, x, r: op.add(r, emit(op.matmul(x, constant(8, 6))))),
    ),
    "heads of one sequence": (
        "cublas.matmul_permuted_lhs",
        product((1, 24, 4, 40), (1, 4, 40, 16), "float16", lhs_axes=[0, 2, 1, 3]),
    ),
    "dilated point": ("cublas.conv2d_1x1", conv((1, 8, 8, 4), (6, 1, 1, 4), dilation=2)),
    "flat bias of a convolution": (
        "cublas.conv2d_1x1_bias",
        convolution((2, 3, 3, 4), 6, Chain((6,)), "float32", seed=0),
    ),
}


@pytest.mark.parametrize("what", ACCEPTED)
def test_accepted(what: str) -> None:
    name, mod = ACCEPTED[what]
    assert reasons(name, mod) == [""]


def test_exact_gelu_is_taken_where_its_approximation_is_allowed() -> None:
    for name in ("cublas.matmul_gelu", "cublas.matmul_bias_gelu"):
        chain = Chain((6,) if "bias" in name else None, activation="gelu")
        mod = dense((4, 8), 6, chain, "float32", seed=0)
        assert reasons(name, mod, approximate_gelu=True) == [""]


def test_names_say_what_a_pattern_takes() -> None:
    names = [triple.name for triple in pattern_table(CublasOptions())]
    assert len(names) == len(set(names)) == len(kinds())
    assert all(name.startswith("cublas.") for name in names)
    for more in ("_bias", "_bias_relu", "_bias_gelu_tanh", "_bias_residual_relu", "_residual"):
        assert names.index("cublas.matmul") < names.index(f"cublas.matmul{more}")
        assert names.index("cublas.conv2d_1x1") < names.index(f"cublas.conv2d_1x1{more}")
    assert "cublas.matmul_permuted_lhs_rhs_result" in names
    assert not any("gelu" in name and "residual" in name for name in names)


def test_options_are_checked_and_documented_in_errors() -> None:
    backend = CublasBackend()
    assert backend.parse_options({}) == CublasOptions(32 << 20, "measured", False, False)
    with pytest.raises(TargetError, match="workspace_limit is a count of bytes, not -1"):
        backend.parse_options({"workspace_limit": -1})
    with pytest.raises(TargetError, match="one of 'measured', 'heuristic'"):
        backend.parse_options({"algorithm": "fastest"})
    with pytest.raises(TargetError, match="must be bool"):
        backend.parse_options({"allow_tf32": 1})
    valid = "algorithm, allow_tf32, approximate_gelu, workspace_limit"
    with pytest.raises(TargetError, match=f"no attribute 'sm'; valid attributes: {valid}"):
        backend.parse_options({"sm": 90})


def test_options_are_part_of_a_target_and_of_its_key() -> None:
    device = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    keys = {
        BackendTarget("cublas", device, CublasBackend().parse_options(given)).key()
        for given in ({}, {"allow_tf32": True}, {"workspace_limit": 0}, {"algorithm": "heuristic"})
    }
    assert len(keys) == 4


def test_is_registered_for_cuda_with_constants_as_arguments() -> None:
    backend = get_backend("cublas")
    assert isinstance(backend, CublasBackend)
    assert (backend.device, backend.granularity) == ("cuda", Granularity.OPERATOR)
    assert backend.constants_as_arguments


def test_a_missing_library_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(soname: str) -> Path | None:
        return None if soname == "libcublasLt.so.13" else find_library(soname)

    monkeypatch.setattr(cublas, "find_library", without)
    with pytest.raises(BackendUnavailableError, match=r"libcublasLt.so.13 .*nvidia-cublas"):
        cublas.find_installation()
    found = CublasBackend().probe()
    assert not found.usable
    assert "pip install" in found.remedy


@pytest.mark.cuda
def test_probe_says_the_version_of_the_library_that_is_linked() -> None:
    found = CublasBackend().probe()
    assert found.usable, found.reason
    target = BackendTarget(
        "cublas", tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}), CublasOptions()
    )
    (need,) = CublasBackend().required_libraries(target)
    assert found.versions == {"cublasLt": need.version}
    assert need.path.name == "libcublasLt.so.13"
