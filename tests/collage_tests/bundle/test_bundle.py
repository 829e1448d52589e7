"""Bundles: called in every way, moved, damaged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

import collage
from collage.backends.contract.errors import BundleError, InputError, OutputError
from collage.testing import graph
from tests.collage_tests.conftest import Optimized
from tests.collage_tests.pipeline.flat_costs import FlatCosts


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(7).standard_normal((1, 3, 32, 32)).astype("float32")


def test_positional_named_and_dlpack_calls_agree(optimized: Optimized, image: np.ndarray) -> None:
    bundle = collage.load(optimized.bundle)
    name = bundle.inputs[0].name
    want = bundle(image)
    assert isinstance(want, np.ndarray) and want.shape == bundle.outputs[0].shape
    np.testing.assert_array_equal(bundle(**{name: image}), want)
    tensor = bundle(tvm.runtime.tensor(image))
    assert hasattr(tensor, "__dlpack__")
    np.testing.assert_array_equal(np.from_dlpack(tensor), want)


def test_an_array_that_is_not_aligned_or_not_contiguous_is_taken(
    optimized: Optimized, image: np.ndarray
) -> None:
    bundle = collage.load(optimized.bundle)
    want = bundle(image)
    raw = np.empty(image.nbytes + 64, "uint8")
    odd = raw[4 : 4 + image.nbytes].view("float32").reshape(image.shape)
    odd[...] = image
    np.testing.assert_array_equal(bundle(odd), want)
    turned = np.ascontiguousarray(image.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(bundle(turned), want)


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        ((), {}, "is missing; the model takes image float32"),
        ((1, 2), {}, "2 inputs given; the model takes"),
        ((), {"picture": 1}, "unknown input 'picture'; the model takes image"),
        ((np.zeros((1, 3, 8, 8), "float32"),), {}, r"must be float32\[1, 3, 32, 32\], not float32"),
        (([0.0],), {}, r"must be an array, float32\[1, 3, 32, 32\], not a list"),
        ((np.zeros((1, 3, 32, 32), "float64"),), {}, "not float64"),
    ],
)
def test_a_wrong_call_names_what_the_model_takes(
    optimized: Optimized, args: tuple[object, ...], named: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        collage.load(optimized.bundle)(*args, **named)


def test_a_copy_elsewhere_runs_with_tvm_and_numpy_alone(
    optimized: Optimized, image: np.ndarray, tmp_path: Path
) -> None:
    """In a process that cannot import collage and loads TVM's runtime library only."""
    moved = tmp_path / "elsewhere" / "bundle"
    shutil.copytree(optimized.bundle, moved)
    np.save(tmp_path / "image.npy", image)
    program = f"""
import sys
class Refuse:
    def find_spec(self, name, *_):
        if name.split(".")[0] in {{"collage", "networkx", "optuna", "onnx", "onnxruntime"}}:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import numpy as np, tvm
from tvm.runtime import vm
machine = vm.VirtualMachine(tvm.runtime.load_module({str(moved / "model.so")!r}), tvm.cpu())
result = machine["main"](tvm.runtime.tensor(np.load({str(tmp_path / "image.npy")!r})))
np.save({str(tmp_path / "result.npy")!r}, result.numpy())
maps = open("/proc/self/maps").read()
assert "libtvm_compiler" not in maps, "only the runtime is needed"
assert {str(optimized.bundle)!r} not in maps, "a library of the first place was loaded"
"""
    env = {**os.environ, "TVM_USE_RUNTIME_LIB": "1", "PYTHONPATH": ""}
    subprocess.run([sys.executable, "-c", program], check=True, env=env, cwd=tmp_path)
    want = collage.load(optimized.bundle)(image)
    np.testing.assert_array_equal(np.load(tmp_path / "result.npy"), want)


def test_the_manifest_says_what_the_bundle_needs(optimized: Optimized) -> None:
    manifest = json.loads((optimized.bundle / "manifest.json").read_text())
    assert manifest["architecture"] == os.uname().machine
    shipped = {entry["file"] for entry in manifest["shared_libraries"]}
    assert shipped == {f"lib/{p.name}" for p in (optimized.bundle / "lib").glob("*")}
    assert (optimized.bundle / "report.html").stat().st_size > 10_000


def _damage(bundle: Path, **changes: object) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").write_text(json.dumps({**manifest, **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "sparc"}, "was built for sparc, this machine is"),
        ({"cpu_flags": ["avx1024"]}, "needs the instruction sets avx1024"),
        ({"schema_version": 99}, "schema version 99"),
        ({"library": "other.so"}, "lacks other.so: copy it whole"),
        ({"shared_libraries": [{"file": "lib/gone.so", "sha256": ""}]}, "lacks lib/gone.so"),
    ],
)
def test_what_is_missing_is_named_before_anything_runs(
    optimized: Optimized, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(optimized.bundle, copy)
    _damage(copy, **changes)
    with pytest.raises(BundleError, match=message):
        collage.load(copy)


def test_a_folder_that_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is no bundle"):
        collage.load(tmp_path)


def test_export_refuses_a_folder_with_other_files(optimized: Optimized, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(OutputError, match="holds files but is no bundle"):
        optimized.result.export(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_that_is_exported_to_anew_is_loaded_anew(tmp_path: Path) -> None:
    x = np.random.default_rng().random((2, 3), "float32")
    loaded = []
    for factor in (2, 5, 7):
        weights = np.full((2, 3), factor, "float32")
        mod = graph([(2, 3)], lambda emit, x, w=weights: relax.op.multiply(x, relax.const(w)))
        result = collage.optimize(mod, ["llvm"], strategy="single:tvm", cost_model=FlatCosts("tvm"))
        loaded.append(collage.load(result.export(tmp_path / "net.bundle")))
        for bundle, known in zip(loaded, (2, 5, 7), strict=False):
            np.testing.assert_allclose(bundle(x), x * known, rtol=1e-6)


def test_export_replaces_an_earlier_bundle(optimized: Optimized, tmp_path: Path) -> None:
    first = optimized.result.export(tmp_path / "b")
    loaded = collage.load(first)
    again = optimized.result.export(tmp_path / "b")
    image = loaded.random_inputs(1)[0]
    np.testing.assert_array_equal(loaded(image), collage.load(again)(image))


def test_benchmark_gives_one_sample_per_call(optimized: Optimized) -> None:
    samples = collage.load(optimized.bundle).benchmark(repeat=5, warmup=1)
    assert len(samples) == 5 and all(sample > 0 for sample in samples)
