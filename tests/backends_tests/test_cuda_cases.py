"""Every case of every CUDA backend: compiles for Hopper with no GPU, links, holds machine code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import local
from typing import Any

import pytest

from benchmarks.gpu.cases import case_names, case_of, cases_of, families
from benchmarks.gpu.cases.compiling import ARCH, cuda_target
from benchmarks.gpu.cases.tvm import operators, recurrent
from benchmarks.timing.child import JsonChild
from collage.backends.contract import BackendTarget
from collage.backends.contract.registry import get_backend
from collage.config import Config
from tests.machine_code import (
    defined_functions,
    device_code,
    needed_libraries,
    shared_statics,
)

pytestmark = pytest.mark.cuda

_LIMIT_SEC = 500.0
_WITHOUT_DEVICE_CODE = {"cublas", "cudnn", "tensorrt"}
"""Their kernels are in NVIDIA's libraries or engines; ours are entries on the host."""

_SAMPLES = {"tvm_operators": operators.SAMPLE, "tvm_recurrent": recurrent.SAMPLE}
"""Of families of which a part is for every day."""

_CASES = [(family, name) for family in families() for name in case_names(family)]


def _param(family: str, name: str) -> Any:
    sampled = family not in _SAMPLES or name in _SAMPLES[family]
    marks = [] if sampled else [pytest.mark.slow]
    return pytest.param(family, name, id=f"{family}-{name}", marks=marks)


class _Compilers:
    """Compiles cases ahead in as many processes as there are cores."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = local()
        self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
        self._answers: dict[tuple[str, str], Future[dict[str, Any]]] = {}

    def start(self, family: str, name: str) -> None:
        self._answers[family, name] = self._pool.submit(self._compile, family, name)

    def answer(self, family: str, name: str) -> dict[str, Any]:
        return self._answers[family, name].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _compile(self, family: str, name: str) -> dict[str, Any]:
        number = len(list(self._folder.iterdir()))
        folder = self._folder / f"{number}-{family}-{''.join(c for c in name if c.isalnum())}"
        folder.mkdir()
        request = {
            "do": "compile",
            "family": family,
            "name": name,
            "device": "cuda",
            "folder": str(folder),
            "cache_dir": str(Config.from_environment().cache_dir),
            "seeds": [],
        }
        # The child dies with the thread that started it, which the pool keeps.
        if not hasattr(self._own, "child"):
            log = self._folder.with_name(f"{folder.name}.stderr")
            self._own.child = JsonChild("benchmarks.gpu.cases.worker", [], log)
        answer: dict[str, Any] = self._own.child.ask(request, _LIMIT_SEC)
        return answer


@pytest.fixture(scope="module")
def compilers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[_Compilers]:
    compilers = _Compilers(tmp_path_factory.mktemp("cases"))
    for item in request.session.items:
        callspec = getattr(item, "callspec", None)
        if callspec is not None and {"family", "name"} <= set(callspec.params):
            compilers.start(callspec.params["family"], callspec.params["name"])
    yield compilers
    compilers.close()


@pytest.mark.timeout(1500)  # the first one waits for compilers that work on all of them
@pytest.mark.parametrize(("family", "name"), [_param(*case) for case in _CASES])
def test_case_compiles_and_links(compilers: _Compilers, family: str, name: str) -> None:
    case = case_of(family, name)
    answer = compilers.answer(family, name)
    library = Path(answer["library"])
    if case.backend != "tvm" and case.backend not in answer["runtimes"]:
        assert f"__tvm_ffi_{case.backend}_0" in defined_functions(library)
    assert {Path(path).name for path in answer["required"]} <= needed_libraries(library)
    assert not shared_statics(library), "another library's kernels would count as its own"
    code = device_code(library)
    assert all(image.kind == "elf" for image in code), f"not machine code: {code}"
    number = (case.arch or ARCH).removeprefix("sm_").rstrip("a")
    assert {image.arch for image in code} <= {int(number)}
    if case.backend not in _WITHOUT_DEVICE_CODE:
        assert sum(image.size_bytes for image in code) > 1000
    # An engine of TensorRT for RTX holds source of its own, compiled when it is loaded.
    if case.backend != "tensorrt":
        assert b"__global__" not in library.read_bytes(), "CUDA source was embedded, not compiled"


_BACKENDS = sorted({case.backend for family in families() for case in cases_of(family).values()})


@pytest.mark.parametrize("name", [name for name in _BACKENDS if name != "tvm"])
def test_every_pattern_has_a_case(name: str) -> None:
    backend = get_backend(name)
    target = BackendTarget(name, cuda_target(), backend.parse_options({}))
    patterns = {triple.name for triple in backend.patterns(target)}
    cases = [case for family in families() for case in cases_of(family).values()]
    tried = {case.pattern for case in cases if case.backend == name}
    assert patterns - tried == set(), "patterns without a case"


@pytest.mark.parametrize("family", families())
def test_cases_prove_something(family: str) -> None:
    for case in cases_of(family).values():
        dtype = str(case.module["main"].params[0].ty.dtype)
        loosest = {"float32": 5e-3, "float16": 2e-2}.get(dtype, 4e-2)
        assert 0 < case.rtol <= loosest, f"{case.name}: {dtype} is more precise than this"
