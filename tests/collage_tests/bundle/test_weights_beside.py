"""Weights in files beside the library: mapped, shared, checked, and the same numbers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.contract import BuildContext, get_backend
from collage.backends.contract.errors import BundleError, OutputError
from collage.backends.relax.modules.weights_beside import has_weights_beside
from collage.testing import graph
from tests.collage_tests.pipeline.flat_costs import FlatCosts

SIZE = 256


@pytest.fixture(scope="module")
def weights() -> list[np.ndarray]:
    rng = np.random.default_rng()
    return [rng.standard_normal((SIZE, SIZE)).astype("float32") * 0.1 for _ in range(4)]


def _net(weights: list[np.ndarray]) -> tvm.IRModule:
    """Two products with different weights, a sum with the third, and the fourth given as it is."""
    first, second, third, kept = (relax.const(array) for array in weights)

    def body(emit: Callable[[relax.Expr], relax.Var], x: relax.Var) -> relax.Expr:
        x = emit(op.nn.relu(emit(op.matmul(x, first))))
        x = emit(op.matmul(x, second))
        return relax.Tuple([emit(op.add(x, third)), kept])

    return graph([(SIZE, SIZE)], body)


def _want(weights: list[np.ndarray], x: np.ndarray) -> list[np.ndarray]:
    first, second, third, kept = (array.astype("float64") for array in weights)
    return [np.maximum(x @ first, 0) @ second + third, kept]


def _result(arrays: list[np.ndarray], backend: str, weights: str = "auto") -> collage.Result:
    targets = ["llvm"] if backend == "tvm" else ["llvm", backend]
    return collage.optimize(
        _net(arrays),
        targets,
        strategy=f"single:{backend}",
        cost_model=FlatCosts(backend),
        weights=weights,
    )


@pytest.fixture(scope="module")
def bundle(weights: list[np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("beside") / "net.bundle"
    return _result(weights, "tvm", weights="beside").export(folder, with_runtime=True)


@pytest.mark.parametrize("backend", ["tvm", "onednn", "openblas", "openvino", "onnxruntime"])
def test_the_numbers_are_numpys(backend: str, weights: list[np.ndarray], tmp_path: Path) -> None:
    if not get_backend(backend).probe().usable:
        pytest.skip(f"{backend} is not here")
    folder = _result(weights, backend, weights="beside").export(tmp_path / "net.bundle")
    moved = folder.rename(tmp_path / "elsewhere")
    loaded = collage.load(moved)
    files = {one.file: one for one in loaded.manifest.files}
    large = [name for name in files if name.startswith("weights/")]
    assert large and sum(files[name].bytes for name in large) >= 4 * SIZE * SIZE * 4
    assert (moved / "model.so").stat().st_size < 4 * SIZE * SIZE * 4
    maps = Path("/proc/self/maps").read_text()
    assert all("r--s 00000000" in line for line in maps.splitlines() if f"{moved}/weights" in line)
    assert sum(f"{moved}/weights" in line for line in maps.splitlines()) == len(large)
    for _ in range(2):
        x = np.random.default_rng().standard_normal((SIZE, SIZE)).astype("float32")
        for found, want in zip(loaded(x), _want(weights, x), strict=True):
            np.testing.assert_allclose(found, want, rtol=2e-4, atol=2e-4)


def test_a_weight_that_is_given_is_the_callers_to_write_into(
    bundle: Path, weights: list[np.ndarray]
) -> None:
    loaded = collage.load(bundle)
    x = np.zeros((SIZE, SIZE), "float32")
    loaded(x)[1][:] = 7
    np.testing.assert_array_equal(loaded(x)[1], weights[3])


def test_equal_weights_are_one_file(weights: list[np.ndarray], tmp_path: Path) -> None:
    first = weights[0]
    folder = _result([first, first.copy(), first, first], "tvm", weights="beside").export(
        tmp_path / "net.bundle"
    )
    # TVM packs those of products; the one that is added and the one that is given are as they were.
    assert len(list((folder / "weights").iterdir())) == 2
    x = np.random.default_rng().standard_normal((SIZE, SIZE)).astype("float32")
    want = _want([first] * 4, x)[0]
    np.testing.assert_allclose(collage.load(folder)(x)[0], want, rtol=2e-4, atol=2e-4)


def test_what_is_missing_cut_off_or_changed_is_refused(bundle: Path, tmp_path: Path) -> None:
    for index, spoil in enumerate((_remove, _cut, _change)):
        moved = Path(shutil.copytree(bundle, tmp_path / str(index)))
        file = min((moved / "weights").iterdir())
        spoil(file)
        with pytest.raises(BundleError, match=file.name):
            collage.load(moved)


def _remove(file: Path) -> None:
    file.unlink()


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-4])


def _change(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("spoil", [_remove, _cut])
def test_tvm_alone_is_told_too(spoil: Callable[[Path], None], bundle: Path, tmp_path: Path) -> None:
    """In a process of its own, which loads the library as any program of TVM's does."""
    program = (
        "import sys, numpy, tvm\n"
        "from tvm import relax\n"
        "machine = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())\n"
        f"print(machine['main'](tvm.runtime.tensor(numpy.ones(({SIZE}, {SIZE}), 'float32')))[0]"
        ".numpy().shape)\n"
    )
    moved = Path(shutil.copytree(bundle, tmp_path / "moved"))
    command = [sys.executable, "-c", program, str(moved / "model.so")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and f"({SIZE}, {SIZE})" in done.stdout, done.stderr
    file = min((moved / "weights").iterdir())
    spoil(file)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and file.name in done.stderr


def test_a_bundle_with_weights_inside_replaces_one_with_files(
    weights: list[np.ndarray], tmp_path: Path
) -> None:
    place = tmp_path / "net.bundle"
    beside = _result(weights, "tvm", weights="beside")
    beside.export(place)
    inside = _result(weights, "tvm")
    inside.export(place)
    assert not (place / "weights").exists()
    mapped, read = (
        json.loads((result.export(tmp_path / name) / "manifest.json").read_text())["memory"]
        for name, result in (("mapped", beside), ("read", inside))
    )
    assert mapped["weights_bytes"] == read["weights_bytes"]
    assert mapped["copies_bytes"] == mapped["loading_bytes"] == 0 < read["loading_bytes"]


def test_another_place_is_refused() -> None:
    with pytest.raises(OutputError, match=r"'elsewhere'.*auto, inside, beside"):
        collage.optimize(graph([(1,)], lambda emit, x: op.exp(x)), ["llvm"], weights="elsewhere")


def test_many_weights_lie_beside_by_themselves(tmp_path: Path) -> None:
    """From 128 MiB on where kernels read them as they are mapped, from a gibibyte on elsewhere."""
    context = BuildContext(tmp_path, tmp_path)
    for rows, beside in ((32, False), (33, True)):
        weights = relax.const(np.zeros((rows * 1024, 1024), "float32"))
        mod = graph([(rows * 1024, 1024)], lambda _, x, weights=weights: op.add(x, weights))
        assert has_weights_beside(mod, context, reads_mapped=True) == beside
        assert not has_weights_beside(mod, context, reads_mapped=False)
