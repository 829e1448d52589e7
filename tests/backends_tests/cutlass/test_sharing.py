"""However often a block repeats, each distinct kernel is chosen, rendered and compiled once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases import CudaCase
from benchmarks.gpu.cases.compiling import compile_case, cuda_target
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.cutlass.codegen import Plan, plan, render_stubs, tune
from collage.backends.cutlass.families import KernelSource
from collage.backends.cutlass.unit import Unit, included_headers
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.cutlass.reading import options_of, read_module
from tests.machine_code import defined_functions, device_code

HIDDEN, MLP, TOKENS = 64, 256, 32
OPTIONS = {"sm": 80, "split_k_slices": 1}


def transformer(blocks: int, hidden: int = HIDDEN) -> tvm.IRModule:
    """The projections of transformer blocks, each with weights of its own."""
    rng = np.random.default_rng(3)

    def linear(emit: Emit, x: relax.Expr, rows: int, columns: int) -> relax.Var:
        weights = constant(rows, columns, rng=rng, scale=rows**-0.5, dtype="float16")
        return emit(
            op.add(emit(op.matmul(x, weights)), constant(columns, rng=rng, dtype="float16"))
        )

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        for _ in range(blocks):
            mixed = linear(emit, x, hidden, hidden)
            x = emit(op.add(linear(emit, mixed, hidden, hidden), x))
            wide = emit(op.nn.gelu(linear(emit, x, hidden, MLP)))
            x = emit(op.add(linear(emit, wide, MLP, hidden), x))
        return op.nn.relu(x)

    return graph([[1, TOKENS, hidden]], body, "float16")


def case(module: tvm.IRModule) -> CudaCase:
    return CudaCase("blocks", "cutlass", "cutlass.matmul_bias_add", module, OPTIONS)


def planned(case: CudaCase, folder: Path) -> Plan:
    target = BackendTarget("cutlass", cuda_target(), options_of(case))
    partitions = read_module(case)
    return plan(partitions, tune(partitions, target, BuildContext(folder, folder)))


def test_twelve_blocks_are_four_problems_and_three_kernels(tmp_path: Path) -> None:
    made = planned(case(transformer(12)), tmp_path)
    assert len(made.entries) == 48
    assert [spec.epilogue for spec in made.specs] == ["bias", "bias_add", "bias_gelu", "bias_add"]
    # Extents are handed over at run time, so both sums with a residual are one kernel.
    assert len(made.units) == 3
    assert made.units == planned(case(transformer(1)), tmp_path).units
    symbols = [entry.partition.symbol for entry in made.entries]
    assert len(set(symbols)) == 48
    stubs = render_stubs(made).text
    for entry in made.entries:
        assert stubs.count(f"COLLAGE_EXPORT({entry.partition.symbol})") == 1
    for unit in made.units:
        assert stubs.count(f"extern int {unit.symbol}(") == 1


def test_arguments_are_those_of_the_function(tmp_path: Path) -> None:
    """Inputs in the kernel's order, by their place among the function's parameters."""
    made = planned(case(transformer(1)), tmp_path)
    for entry in made.entries:
        partition = entry.partition
        assert sorted(partition.arguments) == list(range(partition.num_parameters))
        sizes = [tensor.size for tensor in entry.spec.inputs]
        m, n, k = entry.spec.sizes[:3]
        assert sizes == [m * k, k * n, n] + [m * n] * (len(sizes) - 3)


def test_kernel_is_named_by_its_text_and_its_headers(tmp_path: Path) -> None:
    (tmp_path / "inner.h").write_text("int a;\n")
    (tmp_path / "outer.h").write_text('#include <vector>\n#include "inner.h"\n')
    text = '#include "outer.h"\n#include "cutlass/cutlass.h"\n'
    names = [path.name for path in included_headers(text, tmp_path)]
    assert names == ["inner.h", "outer.h"]

    unit = Unit.of(KernelSource("gemm_x", "int x;\n"))
    assert unit == Unit.of(KernelSource("gemm_x", "int x;\n"))
    assert unit.symbol != Unit.of(KernelSource("gemm_x", "int y;\n")).symbol
    assert unit.file_name.startswith("gemm_x-")
    assert f"#define COLLAGE_KERNEL {unit.symbol}\n" in unit.text
    assert unit.text.endswith("int x;\n")


def compiled_kernels(context: BuildContext) -> set[str]:
    return {path.name for path in (context.cache_dir / "objects").glob("gemm_*.o")}


@pytest.mark.cuda
@pytest.mark.timeout(900)
def test_compilations_are_counted(tmp_path: Path) -> None:
    context = BuildContext(tmp_path / "cache", tmp_path / "work")
    library = compile_case(case(transformer(12)), cuda_target(), tmp_path / "twelve", context)
    kernels = compiled_kernels(context)
    assert len(kernels) == 3
    wanted = {f"__tvm_ffi_cutlass_{i}" for i in range(48)}
    assert wanted <= defined_functions(library.path)
    images = [image for image in device_code(library.path) if image.size_bytes > 4000]
    assert {(image.kind, image.arch) for image in images} == {("elf", 90)}
    assert len(images) >= 3

    # Another model with the same kinds of problems, of other extents: nothing left to compile.
    compile_case(case(transformer(2, 128)), cuda_target(), tmp_path / "two", context)
    assert compiled_kernels(context) == kernels


@pytest.mark.cuda
def test_sources_are_kept_where_asked(tmp_path: Path) -> None:
    kept = CudaCase(
        "kept",
        "cutlass",
        "cutlass.matmul",
        graph([[4, 60, 36], [4, 36, 20]], lambda emit, a, b: op.matmul(a, b)),
        {"use_3xtf32": False, "tmp_dir": str(tmp_path / "sources")},
    )
    compile_case(kept, cuda_target(), tmp_path / "out", BuildContext(tmp_path, tmp_path / "work"))
    names = sorted(path.name for path in (tmp_path / "sources").iterdir())
    assert names[0] == "cutlass_stubs.c"
    assert names[1].startswith("gemm_sm80_simt_64x64x8_rr-")
    (compiled,) = compiled_kernels(BuildContext(tmp_path, tmp_path))
    assert compiled.startswith(names[1].removesuffix(".cu"))
