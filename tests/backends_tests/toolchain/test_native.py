"""Constants, merging, static libraries: checked on the objects and by running them."""

from __future__ import annotations

import ctypes
import dataclasses
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import CompileError
from collage.backends.toolchain import compiling, native
from tests.backends_tests.toolchain.objects import symbols, write


def share(objects: list[Path], output: Path) -> Path:
    """Link objects into a shared library."""
    compiling.run_tool(["g++", "-shared", "-fopenmp", "-o", str(output), *map(str, objects)])
    return output


# Constants.


def test_constant_symbol_is_the_content_s_name() -> None:
    values = np.arange(6, dtype=np.float32)
    same = [values, values.copy(), np.arange(12, dtype=np.float32)[:6]]
    assert len({native.constant_symbol(array) for array in same}) == 1
    other = [
        values,
        values.reshape(2, 3),
        values.view(np.int32),
        values + 1,
        np.asfortranarray(values.reshape(2, 3)).T,
    ]
    assert len({native.constant_symbol(array) for array in other}) == len(other)


ARRAYS = {
    "float32": np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32),
    "strided": np.arange(24, dtype=np.float64).reshape(4, 6).T[::2],
    "integers": np.array([-1, 2**40], np.int64),
    "one byte": np.array([7], np.uint8),
    "scalar": np.array(2.5, np.float32),
    "empty": np.zeros((0, 3), np.float32),
    "empty too": np.zeros((0,), np.int8),
}


def test_constants_read_back_aligned(context: BuildContext, tmp_path: Path) -> None:
    constants = {native.constant_symbol(array): array for array in ARRAYS.values()}
    folder = tmp_path / 'a "quoted" folder'
    data = native.constant_object(constants, folder / "constants.o", context)
    assert list(folder.glob("*.bin")) == []
    lines = [
        f'extern const char {name}[] __attribute__((visibility("hidden")));' for name in constants
    ]
    lines += [f"const char* get_{name}(void) {{ return {name}; }}" for name in constants]
    getters = compiling.compile_object(
        write(tmp_path / "get.c", "\n".join(lines)), tmp_path / "get.o", context
    )
    merged = native.merge_objects([data, getters], tmp_path / "merged.o", context)
    library = ctypes.CDLL(str(share([merged], tmp_path / "lib.so")))
    for name, array in constants.items():
        get = getattr(library, f"get_{name}")
        get.restype = ctypes.c_void_p
        address = get()
        assert address % 64 == 0
        assert ctypes.string_at(address, array.nbytes) == array.tobytes()


def test_constants_do_not_leave_the_library_and_cannot_be_written(
    context: BuildContext, tmp_path: Path
) -> None:
    name = native.constant_symbol(ARRAYS["float32"])
    data = native.constant_object({name: ARRAYS["float32"]}, tmp_path / "c.o", context)
    library = share([data], tmp_path / "lib.so")
    assert name not in symbols(library, "-D")
    sections = compiling.run_tool(["readelf", "-SW", str(data)])
    (flags,) = [line.split()[-4] for line in sections.splitlines() if f".rodata.{name}" in line]
    assert "W" not in flags
    assert "A" in flags


def test_equal_constants_of_many_objects_are_linked_once(
    context: BuildContext, tmp_path: Path
) -> None:
    values = np.random.default_rng(1).standard_normal(5000).astype(np.float32)
    name = native.constant_symbol(values)
    merged = []
    for part in ("a", "b"):
        data = native.constant_object({name: values}, tmp_path / f"{part}_data.o", context)
        text = f'extern const char {name}[] __attribute__((visibility("hidden")));\n'
        text += f"const char* {part}(void) {{ return {name}; }}"
        code = compiling.compile_object(
            write(tmp_path / f"{part}.c", text), tmp_path / f"{part}.o", context
        )
        merged.append(native.merge_objects([data, code], tmp_path / f"{part}_all.o", context))
    file = share(merged, tmp_path / "lib.so")
    assert file.read_bytes().count(values.tobytes()) == 1
    library = ctypes.CDLL(str(file))
    library.a.restype = library.b.restype = ctypes.c_void_p
    assert library.a() == library.b()


# Threads.


@pytest.mark.parametrize("num_threads", [1, 3, 0])
def test_num_threads_is_what_the_context_says(
    num_threads: int, context: BuildContext, tmp_path: Path
) -> None:
    chosen = dataclasses.replace(context, num_threads=num_threads)
    text = """
    int collage_num_threads(void);
    void collage_use_thread_pool(void);
    int omp_get_max_threads(void);
    int asked(void) { return collage_num_threads(); }
    int used(void) { collage_use_thread_pool(); return omp_get_max_threads(); }
    """
    code = compiling.compile_object(write(tmp_path / "a.c", text), tmp_path / "a.o", context)
    file = share([code, native.num_threads_object(chosen)], tmp_path / "lib.so")
    assert "collage_num_threads" not in symbols(file, "-D")
    library = ctypes.CDLL(str(file))
    # OpenMP counts the processors that the process may use.
    all_cores = int(subprocess.run(["nproc"], capture_output=True, text=True, check=True).stdout)
    assert library.asked() == library.used() == (num_threads or all_cores)


def test_thread_pool_hides_its_pointer_and_runs_every_task(
    context: BuildContext, tmp_path: Path
) -> None:
    text = """
    #include <stdint.h>
    #include <pthread.h>
    typedef struct { void* sync; int32_t num_task; } env;
    typedef int (*lambda)(int, env*, void*);
    extern int (*__TVMBackendParallelLaunch)(lambda, void*, int) __attribute__((weak));
    static int mark(int task, env* e, void* data) {
      __sync_fetch_and_add(&((int*)data)[task], e->num_task);
      return task == ((int*)data)[63] ? -1 : 0;
    }
    int run(int* data, int tasks) { return __TVMBackendParallelLaunch(mark, data, tasks); }
    """
    code = compiling.compile_object(write(tmp_path / "a.c", text), tmp_path / "a.o", context)
    pool = native.thread_pool_object(context)
    file = share([code, pool, native.num_threads_object(context)], tmp_path / "lib.so")
    assert "__TVMBackendParallelLaunch" not in symbols(file, "-D")
    library = ctypes.CDLL(str(file))
    for tasks, expected in ((5, 5), (1, 1), (40, 40), (0, 2)):  # 0: one task per thread
        data = (ctypes.c_int * 64)()
        data[63] = -1
        assert library.run(data, tasks) == 0
        assert list(data[:63]) == [expected] * expected + [0] * (63 - expected)
    data = (ctypes.c_int * 64)()
    data[63] = 3  # this task fails
    assert library.run(data, 5) == -1


# A whole static library.

SOURCE = """
#include <collage_ffi.h>
extern const float weights[] __attribute__((visibility("hidden")));
COLLAGE_EXPORT(scale) {
  COLLAGE_CHECK_ARGS(2);
  const float* x = collage_float32(args, 0, 4);
  float* y = collage_float32(args, 1, 4);
  if (x == NULL || y == NULL) return -1;
  #pragma omp parallel for num_threads(collage_num_threads())
  for (int i = 0; i < 4; ++i) y[i] = x[i] * weights[i];
  return 0;
}
"""


@pytest.fixture(scope="module", params=[".c", ".cc"])
def scale(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tvm.runtime.Module:
    """The function ``scale`` above, out of a static library in C and in C++."""
    folder = tmp_path_factory.mktemp("static")
    context = BuildContext(folder / "cache", folder / "work", num_threads=2)
    weights = np.array([1, 2, 3, 4], np.float32)
    module = native.static_library(
        SOURCE, ["scale"], context, suffix=request.param, constants={"weights": weights}
    )
    assert module.implements_function("scale")
    assert list(context.work_dir.iterdir()) == [], "scratch files were left behind"
    (constants,) = module.imports
    objects = [folder / "library.o", folder / "constants.o"]
    for part, place in zip((module, constants), objects, strict=True):
        part.write_to_file(str(place))
    written = [weights.tobytes() in place.read_bytes() for place in objects]
    assert written == [False, True], "weights stand in one object, and that is not merged"
    share(objects, folder / "library.so")
    return tvm.runtime.load_module(str(folder / "library.so"))


def test_static_library_runs(scale: tvm.runtime.Module) -> None:
    x = np.array([1, 1, 2, -1], np.float32)
    y = tvm.runtime.tensor(np.zeros(4, np.float32))
    scale["scale"](tvm.runtime.tensor(x), y)
    np.testing.assert_array_equal(y.numpy(), [1, 2, 6, -4])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ([], TypeError, "expected 2 arguments, got 0"),
        ([np.zeros(4, np.float32)] * 3, TypeError, "expected 2 arguments, got 3"),
        ([np.zeros(4, np.float64)] * 2, TypeError, r"argument [01] is not float32"),
        ([np.zeros(4, np.float32), np.zeros(5, np.float32)], ValueError, "5 elements, expected 4"),
        ([3, np.zeros(4, np.float32)], TypeError, "argument 0 is not a tensor"),
        (["x", np.zeros(4, np.float32)], TypeError, "argument 0 is not a tensor"),
    ],
)
def test_wrong_arguments_raise_in_the_caller(
    arguments: list[object], error: type[Exception], message: str, scale: tvm.runtime.Module
) -> None:
    given = [tvm.runtime.tensor(a) if isinstance(a, np.ndarray) else a for a in arguments]
    with pytest.raises(error, match=message):
        scale["scale"](*given)


def test_strided_argument_is_refused(scale: tvm.runtime.Module) -> None:
    strided = tvm_ffi.from_dlpack(np.zeros(8, np.float32)[::2])
    with pytest.raises(ValueError, match="argument 0 is not contiguous"):
        scale["scale"](strided, tvm.runtime.tensor(np.zeros(4, np.float32)))


def test_static_library_with_an_error_carries_stderr(context: BuildContext) -> None:
    with pytest.raises(CompileError) as caught:
        native.static_library("#include <no_such_header.h>", ["f"], context)
    assert "no_such_header.h" in caught.value.value
    assert list(context.work_dir.iterdir()) == []
