"""Bundles without Python: the example is built as its users would, and prints Python's numbers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import onnx.parser
import pytest
from tvm import relax
from tvm.relax import op

import collage
from collage.bundle import native
from collage.testing import constant, graph
from tests.collage_tests.importers.onnx.onnx_models import by_onnxruntime
from tests.collage_tests.pipeline.flat_costs import FlatCosts

MISSING = {"soname": "libnone.so.7", "version": "7.1", "package": "none"}
EXAMPLE = Path(__file__).parents[3] / "examples" / "cpp"


def _built(source: Path, place: Path) -> Path:
    """Built with a plain line of ``g++``; knows of no library's place."""
    flags = [flag for flag in native.link_flags() if "rpath" not in flag]
    command = ["g++", "-O1", "-Wall", "-Wextra", "-Werror", *native.compile_flags()]
    subprocess.run([*command, source, "-o", place, *flags], check=True)
    return place


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(EXAMPLE / "run_bundle.cpp", tmp_path_factory.mktemp("native") / "run_bundle")


@pytest.fixture(scope="module")
def c_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In C99 but for the one file that is C++."""
    folder = tmp_path_factory.mktemp("native_c")
    strict = ["-O1", "-Wall", "-Wextra", "-Werror"]
    source, made = EXAMPLE / "run_bundle.c", folder / "run_bundle.o"
    c99 = ["gcc", "-std=c99", "-pedantic", *strict, f"-I{native.HEADERS}"]
    subprocess.run([*c99, "-c", source, "-o", made], check=True)
    place = folder / "run_bundle_c"
    flags = [flag for flag in native.link_flags() if "rpath" not in flag]
    command = ["g++", *strict, *native.compile_flags(), native.C_SOURCE, made, "-o", place, *flags]
    subprocess.run(command, check=True)
    return place


@pytest.fixture(scope="module")
def whole(compiled: collage.Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that brings TVM's runtime along."""
    folder = tmp_path_factory.mktemp("whole") / "net.bundle"
    return compiled.export(folder, with_runtime=True)


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(
        Path(__file__).with_name("write_results.cpp"), tmp_path_factory.mktemp("writer") / "write"
    )


@pytest.fixture
def keeping(tmp_path: Path) -> Path:
    """A bundle whose calls make one of five results anew."""
    weights = constant(1, 16)

    def body(emit: Callable[[relax.Expr], relax.Var], x: relax.Var) -> relax.Expr:
        wide = emit(op.broadcast_to(weights, (40000, 16)))
        made = emit(op.exp(x))
        return relax.Tuple([made, x, weights, wide, emit(op.reshape(made, (16,)))])

    costs = FlatCosts("tvm")
    mod = graph([(1, 16)], body)
    result = collage.optimize(mod, ["llvm"], strategy="single:tvm", cost_model=costs)
    return result.export(tmp_path / "keeping.bundle", with_runtime=True)


def _run(
    program: Path, bundle: Path, *arguments: str, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """With nothing but what the bundle has: no Python, no path into this environment."""
    environment = {"LD_LIBRARY_PATH": str(bundle / "runtime"), "PATH": "/usr/bin:/bin"}
    command = [str(program), str(bundle), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=120, cwd=folder
    )


def test_a_program_without_python_computes_the_same(
    program: Path, whole: Path, compiled_bundle: Path, tmp_path: Path
) -> None:
    moved = Path(shutil.copytree(whole, tmp_path / "elsewhere"))
    bundle = collage.load(compiled_bundle)
    (info,), (result,) = bundle.inputs, bundle.outputs
    image = np.random.default_rng().standard_normal(info.shape).astype("float32")
    image.tofile(tmp_path / "image.bin")
    scores = tmp_path / "scores.bin"
    files = [
        "--input",
        f"{info.name}={tmp_path / 'image.bin'}",
        "--output",
        f"{result.name}={scores}",
    ]
    done = _run(program, moved, "--threads", "4", "--runs", "3", *files)
    assert done.returncode == 0, done.stderr
    want = bundle(image)
    found = np.fromfile(scores, "float32").reshape(want.shape)
    np.testing.assert_array_equal(found, want)
    printed, agreement = done.stdout.splitlines()
    shape = ", ".join(map(str, want.shape))
    head, mean = printed.split(": mean ")
    assert head == f"{result.name} float32[{shape}]"
    # Six digits of a sum that was made in another order.
    assert float(mean) == pytest.approx(float(want.mean(dtype=np.float64)), rel=1e-5, abs=1e-6)
    assert agreement == "4 threads agree"


def test_a_program_in_c_computes_the_same(c_program: Path, keeping: Path, tmp_path: Path) -> None:
    bundle = collage.load(keeping)
    (info,) = bundle.inputs
    x = np.random.default_rng().standard_normal(info.shape).astype("float32")
    x.tofile(tmp_path / "x.bin")
    done = _run(c_program, keeping, str(tmp_path / "x.bin"), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    *lines, agreement = done.stdout.splitlines()
    assert agreement == "4 threads agree" and len(lines) == len(bundle.outputs) == 5
    for line, result, want in zip(lines, bundle.outputs, bundle(x), strict=True):
        shape = ", ".join(map(str, want.shape))
        assert line == f"{result.name} float32[{shape}] {want.nbytes} bytes"
        found = np.fromfile(tmp_path / f"{result.name}.bin", "float32").reshape(want.shape)
        np.testing.assert_array_equal(found, want)


def test_weights_beside_the_library_are_found_without_python(
    program: Path, c_program: Path, tmp_path: Path
) -> None:
    weights = np.random.default_rng().standard_normal((160, 160)).astype("float32")
    mod = graph([(160, 160)], lambda emit, x: op.add(x, relax.const(weights)))
    result = collage.optimize(
        mod, ["llvm"], strategy="single:tvm", cost_model=FlatCosts("tvm"), weights="beside"
    )
    bundle = result.export(tmp_path / "beside.bundle", with_runtime=True)
    (file,) = (bundle / "weights").iterdir()
    x = np.random.default_rng().standard_normal((160, 160)).astype("float32")
    x.tofile(tmp_path / "x.bin")
    name, output = result.inputs[0].name, result.outputs[0].name
    place = tmp_path / f"{output}.bin"
    asked = ("--input", f"{name}={tmp_path / 'x.bin'}", "--output", f"{output}={place}")
    for one, arguments in ((program, asked), (c_program, (str(tmp_path / "x.bin"),))):
        done = _run(one, bundle, *arguments, folder=tmp_path)
        assert done.returncode == 0 and "4 threads agree" in done.stdout, done.stderr
        np.testing.assert_array_equal(np.fromfile(place, "float32").reshape(160, 160), x + weights)
        place.unlink()
    file.unlink()
    for one in (program, c_program):
        assert f"lacks weights/{file.name}: copy it whole" in _run(one, bundle).stderr


@pytest.mark.parametrize("weights", ["inside", "beside"])
def test_constants_without_elements_are_results(
    program: Path, c_program: Path, tmp_path: Path, weights: Literal["inside", "beside"]
) -> None:
    """TVM wrote them and could not read them."""
    large = np.random.default_rng().standard_normal((160, 160)).astype("float32")
    empty = [np.zeros((2, 0, 3), "float32"), np.zeros((0,), "float32")]

    def body(emit: Callable[[relax.Expr], relax.Var], x: relax.Var) -> relax.Expr:
        joined = emit(op.concat([x, relax.const(np.zeros((0, 160), "float32"))], axis=0))
        return relax.Tuple([emit(op.add(joined, relax.const(large))), *map(relax.const, empty)])

    mod = graph([(160, 160)], body)
    costs = FlatCosts("tvm")
    result = collage.optimize(
        mod, ["llvm"], strategy="single:tvm", cost_model=costs, weights=weights
    )
    bundle = result.export(tmp_path / "empty.bundle", with_runtime=True)
    x = np.random.default_rng().standard_normal((160, 160)).astype("float32")
    for found, want in zip(collage.load(bundle)(x), [x + large, *empty], strict=True):
        np.testing.assert_array_equal(found, want)
    x.tofile(tmp_path / "x.bin")
    done = _run(c_program, bundle, str(tmp_path / "x.bin"), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    names = [info.name for info in result.outputs]
    assert done.stdout.splitlines()[1:3] == [
        f"{names[1]} float32[2, 0, 3] 0 bytes",
        f"{names[2]} float32[0] 0 bytes",
    ]
    found = np.fromfile(tmp_path / f"{names[0]}.bin", "float32").reshape(160, 160)
    np.testing.assert_array_equal(found, x + large)
    done = _run(program, bundle)
    assert done.returncode == 0 and "4 threads agree" in done.stdout, done.stderr


_CHOOSING = """<ir_version: 9, opset_import: ["" : 17]>
    choosing (float[6,5] x, float[6,5] y)
        => (int64[2,n] places, float[m,5] kept, float[6,5] whole)
    <float half = {0.5}, int64[1] one = {1}> {
        whole = Mul(x, y)
        large = Greater(whole, half)
        places = NonZero(large)
        sums = ReduceSum <keepdims = 0> (y, one)
        row = Greater(sums, half)
        kept = Compress <axis = 0> (x, row)
    }
    """


def test_rows_that_data_choose_are_counted_without_python(
    program: Path, c_program: Path, tmp_path: Path
) -> None:
    """Along the second axis too; none, some and all of them."""
    net = onnx.parser.parse_model(_CHOOSING)
    costs = FlatCosts("tvm")
    result = collage.optimize(net, ["llvm"], strategy="single:tvm", cost_model=costs)
    bundle = result.export(tmp_path / "choosing.bundle", with_runtime=True)
    outputs = collage.load(bundle).outputs
    y = np.random.default_rng().standard_normal((6, 5)).astype("float32")
    for scale, offset in ((0, 0), (0, 9), (1, 0)):
        given = {"x": np.abs(y[::-1]) + offset, "y": scale * y + offset}
        wanted = by_onnxruntime(net, given)
        for name, array in given.items():
            np.ascontiguousarray(array).tofile(tmp_path / f"{name}.bin")
        asked = [f"{name}={tmp_path / name}.bin" for name in given]
        named = [f"{info.name}={tmp_path / info.name}.bin" for info in outputs]
        words = [
            *(w for a in asked for w in ("--input", a)),
            *(w for n in named for w in ("--output", n)),
        ]
        files = [str(tmp_path / f"{name}.bin") for name in given]
        for one, arguments in ((program, words), (c_program, files)):
            done = _run(one, bundle, *arguments, folder=tmp_path)
            assert done.returncode == 0 and "4 threads agree" in done.stdout, done.stderr
            for line, info, want in zip(done.stdout.splitlines(), outputs, wanted, strict=False):
                shape = ", ".join(map(str, want.shape))
                assert line.startswith(f"{info.name} {info.dtype}[{shape}]")
                place = tmp_path / f"{info.name}.bin"
                np.testing.assert_array_equal(
                    np.fromfile(place, want.dtype).reshape(want.shape), want
                )
                place.unlink()


def test_a_program_in_c_is_told_what_is_wrong(c_program: Path, whole: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    shutil.copytree(whole / "runtime", empty / "runtime")
    done = _run(c_program, empty)
    assert done.returncode == 1 and done.stdout == ""
    assert "manifest.json" in done.stderr and str(empty) in done.stderr
    moved = Path(shutil.copytree(whole, tmp_path / "damaged"))
    content = bytearray((moved / "model.so").read_bytes())
    content[0] ^= 1
    (moved / "model.so").write_bytes(content)
    assert "model.so is not what was written" in _run(c_program, moved).stderr


@pytest.mark.parametrize("known", [True, False])
def test_results_belong_to_the_caller(writer: Path, keeping: Path, known: bool) -> None:
    """Weights, inputs and what was computed at compile time are among them."""
    if not known:  # as in bundles of earlier releases
        path = keeping / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"borrowed_outputs": None}))
    done = _run(writer, keeping)
    assert (done.returncode, done.stdout) == (0, "5 results\n"), done.stderr


def test_a_folder_with_another_bundle_is_loaded_anew(tmp_path: Path) -> None:
    source = Path(__file__).with_name("reload_bundle.cpp")
    place, bundles = _built(source, tmp_path / "reload"), list[Path]()
    for factor in (3, 5):
        weight = relax.const(np.full(1, factor, "float32"))
        mod = graph([(1,)], lambda emit, x, w=weight: op.multiply(x, w))
        costs = FlatCosts("tvm")
        result = collage.optimize(mod, ["llvm"], strategy="single:tvm", cost_model=costs)
        bundles.append(result.export(tmp_path / f"{factor}.bundle", with_runtime=True))
    environment = {"LD_LIBRARY_PATH": str(bundles[0] / "runtime"), "PATH": "/usr/bin:/bin"}
    command = [place, tmp_path / "served.bundle", *bundles]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert (done.returncode, done.stdout) == (0, "3\n5\n"), done.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": "riscv64"}, "was built for riscv64, this machine is"),
        ({"cpu_flags": ["avx", "no_such_flag"]}, "needs the instruction sets no_such_flag, which"),
        ({"schema_version": 99}, "has schema version 99; this header reads 1, 2 and 3"),
        (
            {
                "required_libraries": [
                    {"soname": "libnone.so.7", "version": "7.1", "package": "none"}
                ]
            },
            "needs libnone.so.7 of none 7.1: put its folder into LD_LIBRARY_PATH",
        ),
        ({"runtimes": {"tensorrt": "python:tensorrt"}}, "runs partly through Python"),
    ],
)
def test_what_is_missing_is_said_before_anything_runs(
    program: Path, whole: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    moved = Path(shutil.copytree(whole, tmp_path / "changed"))
    path = moved / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    done = _run(program, moved)
    assert done.returncode == 1
    assert message in done.stderr and done.stdout == ""


def test_a_damaged_bundle_is_refused(program: Path, whole: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(whole, tmp_path / "damaged"))
    library = moved / "model.so"
    content = bytearray(library.read_bytes())
    content[int(np.random.default_rng().integers(len(content)))] ^= 1
    library.write_bytes(content)
    assert "model.so is not what was written" in _run(program, moved).stderr
    library.write_bytes(content[:-1])
    assert f"model.so has {len(content) - 1} bytes, not" in _run(program, moved).stderr
    library.unlink()
    assert "lacks model.so: copy it whole" in _run(program, moved).stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")
def test_the_cmake_file_builds_it(whole: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLE.parents[1])}
    configure = ["cmake", "-S", EXAMPLE, "-B", tmp_path, f"-DPython_EXECUTABLE={sys.executable}"]
    subprocess.run(configure, check=True, env=environment, capture_output=True)
    build = ["cmake", "--build", tmp_path]
    subprocess.run(build, check=True, env=environment, capture_output=True)
    for name in ("run_bundle", "run_bundle_c"):
        program = tmp_path / name
        done = subprocess.run([program, whole], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "4 threads agree" in done.stdout
