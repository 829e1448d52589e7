"""Bundles on a real GPU: TVM's own kernels, CUDA graphs, another folder without this project.

What is marked ``gpu`` needs one: ``pytest -m gpu tests/collage_tests/bundle/test_gpu_bundle.py``.
"""

from __future__ import annotations

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
from collage.backends.compile import compile_module
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.registry import backend_names, get_backend, register_backend
from collage.backends.cudnn import library as cudnn
from collage.backends.toolchain.cuda_runtime import has_device
from collage.config import Config
from collage.cost.models.roofline import SPECS, RooflineCostModel
from collage.passes import lower
from collage.search.dataflow import DataflowGraph
from collage.search.strategies.without_costs import single_backend
from collage.targets import resolve_targets
from tests.collage_tests.pipeline.cuda import gpu_models
from tests.cost_tests.toy_cuda_backend import ToyCudaBackend

gpu = pytest.mark.gpu
needs_gpu = pytest.mark.skipif(not has_device(), reason="there is no CUDA device")

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "load_bundle.py"
CUDA = "cuda" if has_device() else "cuda:arch=sm_90a"
TOLERANCE = 2e-5
MODELS = {"convolutions": gpu_models.convolutions, "transformer": gpu_models.transformer}


def optimized(model: gpu_models.Model, *libraries: str) -> collage.Result:
    """Without measuring: the last library takes what it can, TVM the rest."""
    strategy = f"single:{libraries[-1] if libraries else 'tvm'}"
    targets = [CUDA, *libraries]
    return collage.optimize(
        model.module, targets, cost_model=RooflineCostModel(SPECS["sm_90"]), strategy=strategy
    )


def export(model: gpu_models.Model, folder: Path, *libraries: str) -> Path:
    return optimized(model, *libraries).export(folder)


@gpu
@needs_gpu
@pytest.mark.parametrize("name", sorted(MODELS))
def test_native_kernels_are_right_and_a_graph_reads_what_it_is_given(
    name: str, tmp_path: Path
) -> None:
    """In float32. The first call captures, the later ones replay, each with an input of its own."""
    model = MODELS[name]()
    bundle = collage.load(export(model, tmp_path / "bundle"))
    for seed in (1, 2, 3, 1):
        x = model.input(seed)
        model.check(x, bundle(x), TOLERANCE)
    on_device = tvm.runtime.tensor(model.input(4), tvm.cuda(0))
    model.check(model.input(4), bundle(on_device).numpy(), TOLERANCE)


def compile_toy(folder: Path, *, cuda_graph: bool) -> tuple[gpu_models.Model, Path]:
    """A model with two kernels of a library that go wrong when they are launched too often."""
    if "toy_cuda" not in backend_names():
        register_backend(ToyCudaBackend())
    model = gpu_models.rectified()
    native, *_ = resolve_targets([CUDA])
    options = get_backend("toy_cuda").parse_options({"behaviour": "wrong later"})
    toy = BackendTarget("toy_cuda", native.device, options)
    graph = DataflowGraph.from_function(model.module["main"], model.module)
    module = lower(model.module, graph, single_backend(graph, toy, native))
    context = BuildContext(Config.from_environment().cache_dir, folder / "work")
    path = folder / "model.so"
    compile_module(module, [native, toy], path, context, cuda_graph=cuda_graph)
    return model, path


@pytest.mark.cuda
def test_a_model_captures_kernels_when_asked_to(tmp_path: Path) -> None:
    captures = [
        b"vm.builtin.cuda_graph.run_or_capture"
        in compile_toy(folder, cuda_graph=graph)[1].read_bytes()
        for folder, graph in ((tmp_path / "with", True), (tmp_path / "without", False))
    ]
    assert captures == [True, False]


@gpu
@needs_gpu
@pytest.mark.parametrize("cuda_graph", [True, False])
def test_later_calls_replay_the_graph(cuda_graph: bool, tmp_path: Path) -> None:
    """The library counts its launches by the host: with a graph there are two, both in call one."""
    model, path = compile_toy(tmp_path, cuda_graph=cuda_graph)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cuda(0))
    right = []
    for seed in range(8):
        x = model.input(seed)
        found = machine["main"](tvm.runtime.tensor(x, tvm.cuda(0))).numpy()
        expected = model.reference(x)
        right.append(bool(np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()))
    assert right == ([True] * 8 if cuda_graph else [True] * 3 + [False] * 5)


def run_elsewhere(bundle: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Move a bundle and run it on ``input.npy``, as the example does, without this project."""
    moved = folder / "elsewhere" / "bundle"
    moved.parent.mkdir()
    shutil.move(bundle, moved)
    program = f"""
import runpy, sys
# None makes an import fail as if the package were not installed.
sys.modules.update(collage=None, benchmarks=None, networkx=None, optuna=None, onnx=None)
from pathlib import Path
import numpy as np, tvm
load = runpy.run_path({str(EXAMPLE)!r})["load"]
machine, device, manifest = load(Path({str(moved)!r}))
for call in range(2):
    x = np.load({str(folder / "input.npy")!r})[call]
    result = machine["main"](tvm.runtime.tensor(x, device)).numpy()
    np.save(f"{folder}/result{{call}}.npy", result)
maps = open("/proc/self/maps").read()
assert "libtvm_compiler" not in maps, "only the runtime is needed"
"""
    own = EXAMPLE.parents[1]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [path for path in paths if path and Path(path).resolve() != own]
    env = {
        **os.environ,
        "TVM_USE_RUNTIME_LIB": "1",
        "PYTHONPATH": os.pathsep.join(kept),
        "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
    }
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@gpu
@needs_gpu
@pytest.mark.parametrize("library", ["cublas", "cudnn"])
def test_a_moved_bundle_runs_with_tvms_runtime_and_numpy_alone(
    library: str, tmp_path: Path
) -> None:
    model = gpu_models.mixed()
    bundle = export(model, tmp_path / "bundle", library)
    inputs = [model.input(seed) for seed in (21, 22)]
    np.save(tmp_path / "input.npy", np.stack(inputs))
    done = run_elsewhere(bundle, tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    for call, x in enumerate(inputs):
        model.check(x, np.load(tmp_path / f"result{call}.npy"), 5e-3)


def _places(library: Path, folder: Path) -> dict[str, str]:
    """Where a library's own libraries are found by a program that looks into one folder."""
    environment = {"LD_LIBRARY_PATH": str(folder), "PATH": os.environ["PATH"]}
    command = ["ldd", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    lines = [line.split(" => ") for line in done.stdout.splitlines() if " => " in line]
    return {name.strip(): place.split(" (")[0] for name, place in lines}


@pytest.mark.cuda
@pytest.mark.parametrize(("library", "needed"), [("", "cudart"), ("cublas", "cublasLt")])
def test_a_bundle_has_all_but_the_driver(library: str, needed: str, tmp_path: Path) -> None:
    model = gpu_models.mixed()
    libraries = [library] if library else []
    result = optimized(model, *libraries)
    bundle = result.export(tmp_path / "bundle", with_runtime=True, with_libraries=True)
    runtime = bundle / "runtime"
    assert any(needed in path.name for path in runtime.iterdir())
    listed = {one.file for one in collage.bundle.read_manifest(bundle).files}
    assert {f"runtime/{path.name}" for path in runtime.iterdir()} <= listed
    for path in (bundle / "model.so", *runtime.iterdir()):
        for name, place in _places(path, runtime).items():
            if place == "not found":
                assert name == "libcuda.so.1", f"{path.name} lacks {name}"
            elif not place.startswith(("/lib", "/usr/lib")):
                assert Path(place).parent == runtime, place


@pytest.mark.cuda
def test_cudnn_comes_with_what_it_loads_as_it_runs() -> None:
    names = {path.name for path in cudnn.find_installation().requirement().companions}
    assert {"libcudnn_graph.so.9", "libcudnn_engines_runtime_compiled.so.9"} <= names
    assert any(name.startswith("libnvrtc.so") for name in names)


@pytest.mark.cuda
@pytest.mark.skipif(has_device(), reason="there is a GPU here")
@pytest.mark.parametrize("library", ["cublas", "cudnn"])
def test_without_a_driver_the_loader_names_it(library: str, tmp_path: Path) -> None:
    """By then NVIDIA's own libraries were found."""
    model = gpu_models.mixed()
    bundle = export(model, tmp_path / "bundle", library)
    np.save(tmp_path / "input.npy", np.stack([model.input(1)] * 2))
    done = run_elsewhere(bundle, tmp_path)
    assert done.returncode != 0 and "libcuda.so.1: cannot open" in done.stderr, done.stderr
