"""Compiled libraries with engines in them: bytes, entries, manifest, runtimes."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases.tensorrt._case import LAST, module, weights
from collage.backends.compile import compile_module
from collage.backends.contract import ExternalBackend
from collage.backends.contract.registry import get_backend
from collage.backends.link import CompiledLibrary
from collage.backends.tensorrt import codegen, python_runtime, runtimes, tuning
from collage.backends.toolchain import compiling, cuda_toolkit
from tests.backends_tests.dlpack import DLTensor
from tests.backends_tests.tensorrt import support
from tests.machine_code import defined_functions, device_code, needed_libraries

pytestmark = pytest.mark.cuda
pytest.importorskip("tensorrt_rtx", reason="engines without a GPU need TensorRT for RTX")


def _network(x: relax.Expr) -> relax.Expr:
    last = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    y = op.nn.relu(op.nn.conv2d(x, weights(8, 3, 3, 4), padding=1, **last))
    return op.nn.softmax(op.matmul(op.mean(y, [1, 2]), weights(8, 5)))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompiledLibrary, Path]:
    """A network as one engine, and the cache folder that it came from."""
    folder = tmp_path_factory.mktemp("library")
    partitioned = support.partition(module([(LAST, "float32")], _network), support.target())
    assert len(partitioned.functions) == 1 and not partitioned.native_names
    context = support.new_context(folder)
    targets = [support.native(), partitioned.target]
    library = compile_module(partitioned.module, targets, folder / "model.so", context)
    return library, context.cache_dir


def test_the_engine_is_in_the_library(compiled: tuple[CompiledLibrary, Path]) -> None:
    library, cache = compiled
    (plan,) = cache.glob("tuning/blobs/*")
    assert library.path.read_bytes().count(plan.read_bytes()) == 1
    assert "__tvm_ffi_tensorrt_0" in defined_functions(library.path)
    assert device_code(library.path) == []


def test_the_library_needs_nothing_of_tensorrt(compiled: tuple[CompiledLibrary, Path]) -> None:
    library, _ = compiled
    if library.runtimes["tensorrt"].startswith("shim"):
        pytest.skip("TensorRT's headers are here, so its library is linked")
    assert not any(
        "tensorrt" in name or "nvinfer" in name for name in needed_libraries(library.path)
    )
    assert [need.soname for need in library.required] == ["libcudart.so.13"]


def test_the_manifest_says_which_runtime(compiled: tuple[CompiledLibrary, Path]) -> None:
    library, _ = compiled
    package = support.installed()
    shim = runtimes.find_shim(package)
    kind = "python" if shim is None else "shim"
    assert dict(library.runtimes) == {"tensorrt": f"{kind}:{package.name}:{package.version}"}


def test_the_runtime_of_a_manifest_is_made_ready(compiled: tuple[CompiledLibrary, Path]) -> None:
    library, _ = compiled
    backend = get_backend("tensorrt")
    assert isinstance(backend, ExternalBackend)
    name = library.runtimes["tensorrt"]
    if name.startswith("shim"):
        pytest.skip("TensorRT's headers are here, so no Python is needed")
    tvm_ffi.register_global_func(python_runtime.FUNCTION, lambda *_: None, override=True)
    before = tvm_ffi.get_global_func(python_runtime.FUNCTION)
    backend.load_runtime(name)
    assert not before.same_as(tvm_ffi.get_global_func(python_runtime.FUNCTION))


def test_graphs_are_captured_only_where_kernels_are_compiled_before() -> None:
    backend: Any = get_backend("tensorrt")
    assert backend.cuda_graph_safe(support.target()) is support.installed().needs_gpu


def test_equal_engines_are_stored_once(tmp_path: Path) -> None:
    columns = weights(13, 13)

    def twice(x: relax.Expr) -> relax.Expr:
        # The cumulative sum is TVM's, so the products are regions of their own.
        return op.matmul(op.cumsum(op.matmul(x, columns), 0), columns)

    partitioned = support.partition(module([((3, 13), "float32")], twice), support.target())
    assert len(partitioned.functions) == 2
    context = support.new_context(tmp_path)
    targets = [support.native(), partitioned.target]
    library = compile_module(partitioned.module, targets, tmp_path / "model.so", context)
    (plan,) = context.cache_dir.glob("tuning/blobs/*")
    assert library.path.read_bytes().count(plan.read_bytes()) == 1
    assert {"__tvm_ffi_tensorrt_0", "__tvm_ffi_tensorrt_1"} <= defined_functions(library.path)


# The entry point, called as the virtual machine calls it. There is no GPU, so nothing is run: what
# reaches the Python runtime is recorded.


class _Any(ctypes.Structure):
    """A ``TVMFFIAny`` that holds a pointer (tvm/ffi/c_api.h)."""

    _fields_ = (
        ("type_index", ctypes.c_int32),
        ("padding", ctypes.c_uint32),
        ("value", ctypes.c_void_p),
    )


_CUDA, _CPU, _DLTENSOR = 2, 1, 7


def _tensor(address: int, shape: tuple[int, ...], device: int = _CUDA, bits: int = 32) -> DLTensor:
    extents = (ctypes.c_int64 * len(shape))(*shape)
    return DLTensor(address, device, 0, len(shape), 2, bits, 1, extents, None, 0)


@pytest.fixture
def entry(compiled: tuple[CompiledLibrary, Path]) -> Iterator[Any]:
    library, _ = compiled
    if library.runtimes["tensorrt"].startswith("shim"):
        pytest.skip("the C++ runtime needs a GPU")
    # A copy: an entry looks the function up once, and keeps it as long as it is loaded.
    own = library.path.with_name(f"copy-{len(list(library.path.parent.glob('copy-*')))}.so")
    shutil.copyfile(library.path, own)
    needs = cuda_toolkit.find_library("libcudart.so.13")
    ctypes.CDLL(str(needs), ctypes.RTLD_GLOBAL)
    function = ctypes.CDLL(str(own))["__tvm_ffi_tensorrt_0"]

    def call(*tensors: DLTensor) -> int:
        args = (_Any * len(tensors))()
        for place, tensor in enumerate(tensors):
            args[place] = _Any(_DLTENSOR, 0, ctypes.addressof(tensor))
        result = _Any(0, 0, None)
        return int(function(None, args, len(tensors), ctypes.byref(result)))

    yield call


def test_an_entry_hands_over_engine_and_addresses(
    entry: Any, compiled: tuple[CompiledLibrary, Path]
) -> None:
    calls: list[tuple[Any, ...]] = []

    def run(digest: str, address: int, size: int, *rest: int) -> None:
        calls.append((str(digest), ctypes.string_at(address, size), *rest))

    tvm_ffi.register_global_func(python_runtime.FUNCTION, run, override=True)
    x, y = _tensor(0x1000, LAST), _tensor(0x2000, (2, 5))
    assert entry(x, y) == 0 and entry(x, y) == 0
    _, cache = compiled
    (plan,) = cache.glob("tuning/blobs/*")
    engine = tuning.Engine("tensorrt_0", plan.read_bytes(), (), ())
    assert calls == [(engine.digest, engine.plan, 0, 0, 0x1000, 0x2000)] * 2


@pytest.mark.parametrize(
    "tensors",
    [
        (_tensor(0x1000, LAST),),
        (_tensor(0x1000, LAST, device=_CPU), _tensor(0x2000, (2, 5))),
        (_tensor(0x1000, LAST, bits=16), _tensor(0x2000, (2, 5))),
        (_tensor(0x1000, LAST), _tensor(0x2000, (2, 6))),
    ],
    ids=["count", "device", "dtype", "size"],
)
def test_an_entry_refuses_a_wrong_caller(entry: Any, tensors: tuple[DLTensor, ...]) -> None:
    def run(*_: Any) -> None:
        raise AssertionError("reached the runtime")

    tvm_ffi.register_global_func(python_runtime.FUNCTION, run, override=True)
    assert entry(*tensors) == -1


def test_an_entry_says_what_is_wrong(compiled: tuple[CompiledLibrary, Path]) -> None:
    library, _ = compiled
    ctypes.CDLL(str(cuda_toolkit.find_library("libcudart.so.13")), ctypes.RTLD_GLOBAL)
    loaded = tvm.runtime.load_module(str(library.path))
    entry = loaded.get_function("tensorrt_0", query_imports=True)
    x, y = (tvm.runtime.tensor(np.zeros(shape, np.float32)) for shape in (LAST, (2, 5)))
    with pytest.raises(TypeError, match="argument 0 is not in the memory of a CUDA device"):
        entry(x, y)
    with pytest.raises(TypeError, match="expected 2 arguments, got 1"):
        entry(x)


def test_the_python_runtime_says_why_it_cannot_run(tmp_path: Path) -> None:
    if tvm.cuda(0).exist:
        pytest.skip("there is a GPU here")
    package = support.installed()
    garbage = np.zeros(4096, np.uint8)
    with pytest.raises(RuntimeError, match=r"CUDA|[Cc]uda|driver"):
        python_runtime.PythonRuntime(package).run("digest", garbage.ctypes.data, 4096, 0, 0, 1, 2)


def test_the_shim_compiles_where_its_header_is(tmp_path: Path) -> None:
    include = cuda_toolkit.find_header_dir(runtimes.HEADER)
    if include is None:
        pytest.skip(f"{runtimes.HEADER} is in no wheel and not installed here")
    package = support.installed()
    library = runtimes.LibraryRequirement(
        "libnvinfer.so", package.version, package.name, Path("unused")
    )
    built = codegen.runtime_compilation(
        runtimes.Shim(include, library), support.new_context(tmp_path)
    ).run()
    symbols = compiling.run_tool(["nm", str(built)])
    assert " T collage_tensorrt_run" in symbols and "createInferRuntime_INTERNAL" in symbols
