"""What the cuBLAS backend compiles, run whole on the host over a stand-in for cublasLt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.cases import CudaCase
from benchmarks.gpu.cases.cublas._products import Chain, dense
from benchmarks.gpu.cases.cublas.cases import cases
from collage.backends.cublas import codegen
from collage.backends.cublas.problem import Problem
from collage.backends.cublas.tuning import Choice, Device
from collage.cost.reference import evaluate, largest_error
from tests.backends_tests.cublas.support import (
    Library,
    call_request,
    compile_all,
    compile_stand_in,
    inputs_of,
    output_of,
    serve,
)
from tests.machine_code import needed_libraries

pytestmark = pytest.mark.cuda

CASES = [
    case for case in cases() if "3072" not in case.name and not case.name.endswith("heuristic")
]
"""Without the one that takes long by a plain loop, and the double of another."""

HOPPER = Device("stand-in", 13000, 90, 132)
"""What the stand-in says of itself."""
VALID = 0xFFEEDDCCBBAA9988
"""The last word of an algorithm that the stand-in takes for its own."""


def layer(chain: Chain | None = None, dtype: str = "float32", seed: int = 0) -> CudaCase:
    """A small dense layer as a case."""
    chain = chain or Chain((24,))
    module = dense((5, 32), 24, chain, dtype, seed=seed)
    return CudaCase(f"layer{seed}", "cublas", f"cublas.matmul{chain.suffix}", module)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_stand_in(tmp_path_factory.mktemp("stand_in"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Library:
    return compile_all(tmp_path_factory.mktemp("library"), CASES, cache, approximate_gelu=True)


@pytest.fixture(scope="module")
def answers(
    stand_in: Path, library: Library, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[str, float]]:
    """What each case raised, and its largest difference to the reference."""
    folder = tmp_path_factory.mktemp("answers")
    requests, expected = [], []
    for index, (case, call) in enumerate(zip(library.cases, library.calls, strict=True)):
        inputs = inputs_of(case, seed=index)
        requests.append(call_request(folder / str(index), call, inputs))
        expected.append(evaluate(case.module, inputs)[0])
    answered = serve(stand_in, library.path, folder, {"requests": requests})
    found = []
    for asked, answer, wanted in zip(requests, answered, expected, strict=True):
        error = answer["error"]
        found.append((error, math.inf if error else largest_error(output_of(asked), wanted)))
    return found


@pytest.mark.parametrize("index", range(len(CASES)), ids=[case.name for case in CASES])
def test_compiled_products_are_right(
    index: int, library: Library, answers: list[tuple[str, float]]
) -> None:
    error, difference = answers[index]
    assert error == ""
    assert difference < library.cases[index].rtol


def test_the_library_needs_cublaslt_and_says_its_version(library: Library) -> None:
    needed = needed_libraries(library.path)
    assert {"libcublasLt.so.13", "libcudart.so.13"} <= needed
    (need,) = [n for n in library.linked.required if n.soname == "libcublasLt.so.13"]
    assert need.package == "nvidia-cublas"
    assert need.version.split(".")[0] == "13" and need.path.is_file()


def test_partitions_share_one_runtime_and_the_product(tmp_path: Path, stand_in: Path) -> None:
    layers = [layer(seed=seed) for seed in range(6)] + [layer(Chain(None), seed=6)]
    library = compile_all(tmp_path / "a", layers, tmp_path / "cache")
    objects = list((tmp_path / "cache" / "objects").glob("cublas_runtime-*.o"))
    assert len(objects) == 1
    before = objects[0].stat().st_mtime_ns
    requests = [
        call_request(tmp_path / str(i), call, inputs_of(case, i))
        for i, (call, case) in enumerate(zip(library.calls, layers, strict=True))
    ]
    answered = serve(stand_in, library.path, tmp_path, {"requests": requests})
    assert [a["error"] for a in answered] == [""] * 7
    # Six equal products ask once, the seventh is another one; one handle serves all.
    assert [a["heuristics"] for a in answered] == [1] * 6 + [2]
    assert answered[-1]["handles"] == 1
    compile_all(tmp_path / "b", layers, tmp_path / "cache")
    assert objects[0].stat().st_mtime_ns == before
    assert len(list((tmp_path / "cache" / "objects").glob("cublas_runtime-*.o"))) == 1


def test_later_calls_search_and_allocate_nothing_even_while_captured(
    tmp_path: Path, stand_in: Path, cache: Path
) -> None:
    case = layer()
    library = compile_all(tmp_path / "library", [case], cache)
    calls = [
        call_request(tmp_path / str(i), library.calls[0], inputs_of(case, i), captured=i > 0)
        for i in range(3)
    ]
    answered = serve(stand_in, library.path, tmp_path, {"requests": calls})
    assert [a["error"] for a in answered] == ["", "", ""]
    assert [a["launches"] for a in answered] == [1, 2, 3]
    for counted in ("heuristics", "handles", "allocations"):
        assert len({a[counted] for a in answered}) == 1
    for index, asked in enumerate(calls):
        (expected,) = evaluate(case.module, inputs_of(case, index))
        assert largest_error(output_of(asked), expected) < case.rtol


def stored(algorithm: Sequence[int], device: Device = HOPPER) -> Choice:
    return Choice(device, 131000, tuple(algorithm), 2048, 1e-6, 2e-6, 3)


CHOICES = {
    "its own": (stored([2, 0, 0, 0, 0, 0, 0, VALID]), 131000, 2, 0),
    "of another version": (stored([2, 0, 0, 0, 0, 0, 0, VALID]), 131100, 0, 1),
    "of another GPU": (
        stored([2, 0, 0, 0, 0, 0, 0, VALID], Device("other", 13000, 90, 114)),
        131000,
        0,
        1,
    ),
    "not one of the library's": (stored([2, 0, 0, 0, 0, 0, 0, 7]), 131000, 0, 1),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_stored_algorithm_is_used_where_it_holds(
    name: str, tmp_path: Path, stand_in: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice, version, used, heuristics = CHOICES[name]

    def choose(problems: Sequence[Problem], *_: Any) -> dict[Problem, Choice]:
        return dict.fromkeys(problems, choice)

    monkeypatch.setattr(codegen, "choose", choose)
    case = layer(Chain((24,), False, "relu"))
    library = compile_all(tmp_path / "library", [case], cache)
    inputs = inputs_of(case, 0)
    asked = call_request(tmp_path / "call", library.calls[0], inputs)
    request = {"requests": [asked], "version": version}
    (answer,) = serve(stand_in, library.path, tmp_path, request)
    assert (answer["error"], answer["algorithm"], answer["heuristics"]) == ("", used, heuristics)
    assert largest_error(output_of(asked), evaluate(case.module, inputs)[0]) < case.rtol


def test_a_stored_algorithm_beyond_the_workspace_limit_is_not_used(
    tmp_path: Path, stand_in: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = stored([2, 0, 0, 0, 0, 0, 0, VALID])
    monkeypatch.setattr(codegen, "choose", lambda problems, *_: dict.fromkeys(problems, choice))
    case = layer()
    library = compile_all(tmp_path / "library", [case], cache, workspace_limit=1024)
    asked = call_request(tmp_path / "call", library.calls[0], inputs_of(case, 0))
    (answer,) = serve(stand_in, library.path, tmp_path, {"requests": [asked]})
    assert (answer["error"], answer["algorithm"]) == ("", 0)


def test_wrong_arguments_raise_an_error_in_the_caller(
    tmp_path: Path, stand_in: Path, cache: Path
) -> None:
    case = layer(dtype="float16")
    library = compile_all(tmp_path / "library", [case], cache)
    call, inputs = library.calls[0], inputs_of(case, 0)
    few = call_request(tmp_path / "few", call, inputs)
    few["inputs"].pop()
    wide = call_request(tmp_path / "wide", call, [x.astype("float32") for x in inputs])
    short = call_request(tmp_path / "short", call, inputs)
    short["inputs"][1]["shape"] = [16, 24]
    skewed = call_request(tmp_path / "skewed", call, inputs, shift=8)
    early = call_request(tmp_path / "early", call, inputs, captured=True)
    requests = {"requests": [few, wide, short, skewed, early]}
    errors = [a["error"] for a in serve(stand_in, library.path, tmp_path, requests)]
    assert "TypeError" in errors[0] and "expected 4 arguments, got 3" in errors[0]
    assert "TypeError" in errors[1] and "32 bits, expected 16" in errors[1]
    assert "ValueError" in errors[2] and "384 elements, expected 768" in errors[2]
    assert "ValueError" in errors[3] and "not aligned to 16 bytes" in errors[3]
    assert errors[4] == ""  # Its algorithm needs no workspace, so nothing is allocated.


def test_without_a_driver_the_error_is_typed_and_says_what_failed(
    tmp_path: Path, cache: Path
) -> None:
    """NVIDIA's own libraries, called on a machine that has no GPU."""
    case = layer()
    library = compile_all(tmp_path / "library", [case], cache)
    asked = call_request(tmp_path / "call", library.calls[0], inputs_of(case, 0))
    preload = [str(need.path) for need in library.linked.required]
    (answer,) = serve(None, library.path, tmp_path, {"requests": [asked], "preload": preload})
    assert answer["error"].startswith("RuntimeError: cublas: cudaGetDevice")
    assert "float32 NN m=24 n=5 k=32 batch=1" in answer["error"]
