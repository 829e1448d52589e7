"""The pool of threads in libgomp's place: regions, loops, barriers, callers, and who is called."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from collage.backends.contract import BuildContext
from collage.backends.toolchain.openmp_pool import (
    SONAME,
    on_pool,
    pool_library,
    uses_more,
    wrapping,
)

CHECK = Path(__file__).with_name("openmp_pool_check.c")

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux's futex")


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> BuildContext:
    folder = tmp_path_factory.mktemp("pool")
    return BuildContext(folder / "cache", folder / "work")


@pytest.fixture(scope="module")
def pool(context: BuildContext) -> Path:
    library = pool_library(context)
    assert library is not None
    return library


def share(source: Path, output: Path, *flags: str) -> Path:
    command = ["gcc", "-fopenmp", "-O2", "-shared", "-fPIC", "-o", str(output), str(source), *flags]
    subprocess.run(command, check=True, capture_output=True)
    return output


@pytest.fixture(scope="module")
def check(pool: Path, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """``openmp_pool_check.c``, linked with the pool as kernels are."""
    output = tmp_path_factory.mktemp("check") / "check.so"
    share(CHECK, output, *wrapping(pool), str(pool), f"-Wl,-rpath,{pool.parent}")
    library = ctypes.CDLL(str(output))
    library.loop.restype = ctypes.c_long
    library.loop.argtypes = (
        ctypes.c_int,
        ctypes.c_long,
        ctypes.c_long,
        ctypes.c_long,
        ctypes.c_int,
    )
    return library


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 33])
def test_every_part_of_a_region_is_computed_once(check: ctypes.CDLL, threads: int) -> None:
    assert check.numbers(threads, 500) == 0
    assert check.numbers(2, 10) == 0  # fewer than there are


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("bounds", [(0, 100, 1), (3, 4, 1), (0, 0, 1), (5, 2, 1), (-7, 200, 13)])
@pytest.mark.parametrize("chunk", [0, 1, 4])
def test_loops_are_dealt_out_whole(
    check: ctypes.CDLL, threads: int, bounds: tuple[int, int, int], chunk: int
) -> None:
    assert check.loop(threads, *bounds, chunk) == sum(range(*bounds))


@pytest.mark.parametrize("threads", [2, 4, 9])
def test_a_barrier_holds_everybody(check: ctypes.CDLL, threads: int) -> None:
    assert check.barriers(threads, 200) == 0


def test_a_region_in_a_region_has_one_thread(check: ctypes.CDLL) -> None:
    assert check.nested(4) == 0


def test_callers_have_helpers_of_their_own_that_end_with_them(check: ctypes.CDLL) -> None:
    def tasks() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    check.numbers(3, 1)
    before = tasks()
    assert check.callers(6, 3) == 0
    assert tasks() == before


def test_a_forked_process_starts_helpers_anew(check: ctypes.CDLL) -> None:
    assert check.forked(3) == 0


def test_who_has_no_core_is_not_waited_for(check: ctypes.CDLL) -> None:
    """With libgomp a region's parts are computed by its threads, whenever they get the core."""
    assert check.computed_by_caller(500) > 0


@pytest.mark.parametrize("flush", [0, 1])
def test_all_round_as_the_caller_does(check: ctypes.CDLL, flush: int) -> None:
    assert check.flushing(4, flush) == 4 * flush


# Who is called.

REGION = "int size(int n) { int s = 0;\n#pragma omp parallel num_threads(n)\n%s return s; }"
PLAIN = REGION % "__sync_fetch_and_add(&s, 1);"
DYNAMIC = (
    "int size(int n) { int s = 0;\n#pragma omp parallel for schedule(dynamic) reduction(+ : s)\n"
    "for (int i = 0; i < n; ++i) s += 1; return s; }"
)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        source = tmp_path / "part.c"
        source.write_text(text)
        return share(source, tmp_path / "libpart.so")

    return write


def undefined(library: Path) -> str:
    command = ["nm", "--dynamic", "--undefined-only", str(library)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_library_calls_the_pool_whatever_is_loaded(
    written: Callable[[str], Path], pool: Path, context: BuildContext
) -> None:
    library = written(PLAIN)
    moved = on_pool(library, pool, context)
    assert moved.name == library.name and moved != library
    assert "COMP_parallel" in undefined(moved) and "GOMP_parallel" not in undefined(moved)
    assert "GOMP_parallel" in undefined(library), "the original is not written to"
    assert on_pool(library, pool, context) == moved
    # libgomp before all others, as PyTorch brings it.
    code = (
        "import ctypes, os, sys\n"
        "ctypes.CDLL('libgomp.so.1', ctypes.RTLD_GLOBAL)\n"
        "ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)\n"
        "print(ctypes.CDLL(sys.argv[2]).size(3), len(os.listdir('/proc/self/task')))\n"
    )
    command = [sys.executable, "-c", code, str(pool), str(moved)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["3", "3"]


def test_what_uses_more_of_libgomp_is_left_to_it(
    written: Callable[[str], Path], pool: Path, context: BuildContext
) -> None:
    library = written(DYNAMIC)
    assert "dynamic" in uses_more(library, pool)
    assert on_pool(library, pool, context) == library
    assert uses_more(pool, pool) == "" and pool.name == SONAME


def test_a_library_calls_the_pool_for_all_or_for_nothing(
    written: Callable[[str], Path], pool: Path, context: BuildContext
) -> None:
    """The linker keeps a name that another one ends with but once."""
    text = "int xomp_get_thread_num(void); int omp_get_thread_num(void);\n" + PLAIN
    library = written(
        text.replace("s, 1", "s, 1 + 0 * (omp_get_thread_num() ? xomp_get_thread_num() : 0)")
    )
    moved = on_pool(library, pool, context)
    assert moved.read_bytes() == library.read_bytes()
    assert "GOMP_parallel" in undefined(moved)


def test_what_has_no_threads_is_left_as_it_is(
    written: Callable[[str], Path], pool: Path, context: BuildContext
) -> None:
    library = written("int size(int n) { return n; }")
    assert on_pool(library, pool, context) == library
