"""Denormal numbers count as zero in every thread of a library, and nowhere else."""

from __future__ import annotations

import ctypes
import dataclasses
import platform
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.compile import compile_module
from collage.backends.contract import BuildContext, ExternalBackend
from collage.backends.contract.registry import get_backend
from collage.backends.link import stage_libraries
from collage.targets import resolve_targets
from collage.testing.backend_cases import fuse
from collage.testing.graphs import Emit, constant, graph
from tests.object_cache import cache_with_objects

THREADS = 3
"""More than this machine may have cores: each still has flags of its own."""

PROBE = """
#include <omp.h>
static int flushes(void) { volatile float a = 1e-20f; volatile float b = a * a; return b == 0.0f; }
int caller(void) { return flushes(); }
int team(int threads) {
  int count = 0;
#pragma omp parallel num_threads(threads) reduction(+ : count)
  count += flushes();
  return count;
}
#ifdef __SSE__
#include <xmmintrin.h>
void flush_here(int on) { _mm_setcsr((_mm_getcsr() & ~0x8040u) | (on ? 0x8040u : 0)); }
#endif
"""


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> BuildContext:
    folder = tmp_path_factory.mktemp("denormals")
    return BuildContext(cache_with_objects(folder), folder / "work", num_threads=THREADS)


@pytest.fixture(scope="module")
def probe(context: BuildContext, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Which threads of this process flush, seen from outside of any library of ours."""
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.c").write_text(PROBE)
    flags = ["-shared", "-fPIC", "-O1", "-fopenmp", str(folder / "probe.c")]
    subprocess.run(["gcc", *flags, "-o", str(folder / "probe.so")], check=True)
    library = ctypes.CDLL(str(folder / "probe.so"))
    assert library.caller() == 0 and library.team(THREADS) == 0
    return library


def scaled(emit: Emit, x: relax.Expr) -> relax.Expr:
    return op.multiply(x, relax.const(np.float32(1e-20)))


def product(emit: Emit, x: relax.Expr) -> relax.Expr:
    """None of the sums' terms is a normal number."""
    return op.matmul(x, constant(16, 128, scale=1e-20))


def pooled(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Averages of what is denormal already."""
    return op.nn.avg_pool2d(x, (2, 2), (2, 2))


CASES: dict[str, tuple[str, tuple[int, ...], float, Callable[[Emit, relax.Expr], relax.Expr]]] = {
    "tvm_parallel": ("tvm", (512, 128), 1e-20, scaled),
    "tvm_serial": ("tvm", (1, 4), 1e-20, scaled),
    "onednn_product": ("onednn", (512, 16), 1e-20, product),
    "onednn_pool": ("onednn", (1, 64, 32, 32), 1e-40, pooled),
    "openblas_product": ("openblas", (512, 16), 1e-20, product),
    "openvino_parallel": ("openvino", (512, 128), 1e-20, scaled),
    "openvino_product": ("openvino", (512, 16), 1e-20, product),
    "openvino_pool": ("openvino", (1, 64, 32, 32), 1e-40, pooled),
    "onnxruntime_parallel": ("onnxruntime", (512, 128), 1e-20, scaled),
    "onnxruntime_product": ("onnxruntime", (512, 16), 1e-20, product),
}


def run(mod: tvm.IRModule, backend: str, context: BuildContext, x: np.ndarray) -> np.ndarray:
    """What one backend makes of an input."""
    targets = resolve_targets(["llvm", *({backend} - {"tvm"})])
    target = next(t for t in targets if t.backend == backend)
    if isinstance(target.implementation, ExternalBackend):
        mod = fuse(target.implementation, target, mod)
        assert any("Codegen" in (f.attrs or {}) for f in mod.functions.values())
    context.work_dir.mkdir(parents=True, exist_ok=True)
    # A folder of its own: a library that is loaded already would be taken for the new one.
    output = Path(tempfile.mkdtemp(dir=context.work_dir)) / "model.so"
    library = compile_module(mod, list(targets), output, context)
    stage_libraries(library, copy=False)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library.path)), tvm.cpu())
    machine["main"](tvm.runtime.tensor(x))  # A first call makes threads and packs weights.
    return machine["main"](tvm.runtime.tensor(x)).numpy()


@pytest.mark.parametrize("ieee", [False, True], ids=["flushed", "ieee"])
@pytest.mark.parametrize("name", CASES)
def test_all_threads_flush_unless_told_otherwise(
    name: str, ieee: bool, context: BuildContext, probe: ctypes.CDLL
) -> None:
    backend, shape, scale, body = CASES[name]
    if not (found := get_backend(backend).probe()).usable:
        pytest.skip(found.reason)
    x = (np.random.default_rng().uniform(1.0, 2.0, shape) * scale).astype(np.float32)
    chosen = dataclasses.replace(context, ieee_denormals=ieee)
    result = run(graph([shape], body), backend, chosen, x)
    # A thread that did otherwise would have left its share of the rows. A few sums of denormals,
    # which have few digits, are zero by themselves.
    kept = np.count_nonzero(result) / result.size
    assert kept > 0.99 if ieee else kept == 0
    assert probe.caller() == 0 and probe.team(THREADS) == 0, "a thread was left flushing"


def failing() -> tvm.IRModule:
    """Multiplies, then raises an error."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x], pure=False):
        y = builder.emit(op.multiply(x, x))
        builder.emit(op.assert_op(relax.const(False), format="as wanted"))
        builder.emit_func_output(y)
    return builder.get()


def test_an_error_leaves_no_thread_flushing(context: BuildContext, probe: ctypes.CDLL) -> None:
    with pytest.raises(AssertionError, match="as wanted"):
        run(failing(), "tvm", context, np.ones(4, np.float32))
    assert probe.caller() == 0 and probe.team(THREADS) == 0


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the probe sets flags of x86")
def test_a_caller_that_flushes_goes_on_flushing(context: BuildContext, probe: ctypes.CDLL) -> None:
    probe.flush_here(1)
    try:
        result = run(graph([(4,)], scaled), "tvm", context, np.full(4, 1e-20, np.float32))
        assert probe.caller() == 1
    finally:
        probe.flush_here(0)
    assert not result.any()
