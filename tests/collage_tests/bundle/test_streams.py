"""Calls in order with a CUDA stream of the caller's, from Python, C++ and C.

What is marked ``gpu`` needs one: ``pytest -m gpu tests/collage_tests/bundle/test_streams.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
import tvm
from tvm.relax import op

import collage
from collage.backends.contract.errors import InputError
from collage.backends.toolchain.cuda_driver import CudaDriver
from collage.backends.toolchain.cuda_runtime import has_device
from collage.bundle import native
from collage.bundle.calling.streams import stream_handle
from collage.cost.models.roofline import SPECS, RooflineCostModel
from collage.testing import constant, graph
from tests.collage_tests.pipeline.cuda import gpu_models
from tests.collage_tests.pipeline.flat_costs import FlatCosts

needs_gpu = pytest.mark.skipif(not has_device(), reason="there is no CUDA device")
TOLERANCE = 2e-5
WORDS = 1 << 28
"""Of memory that is filled, 0.4 ms each time."""


def _on_gpu(module: tvm.IRModule, folder: Path) -> Path:
    costs = RooflineCostModel(SPECS["sm_90"])
    result = collage.optimize(module, ["cuda"], cost_model=costs, strategy="single:tvm")
    return result.export(folder)


def _on_cpu(folder: Path, name: str = "x") -> Path:
    net = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        net (float[4, 4] {name}) => (float[4, 4] y) {{ y = Add({name}, {name}) }}"""
    )
    result = collage.optimize(net, ["llvm"], strategy="single:tvm", cost_model=FlatCosts("tvm"))
    return result.export(folder)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = Path(__file__).with_name("stream_results.cpp")
    place = tmp_path_factory.mktemp("streams") / "stream_results"
    command = ["g++", "-O1", "-Wall", "-Wextra", "-Werror", *native.compile_flags()]
    command += [str(native.C_SOURCE), str(source), "-o", str(place), *native.link_flags()]
    subprocess.run(command, check=True)
    return place


def test_a_bundle_for_a_cpu_has_no_streams(program: Path, tmp_path: Path) -> None:
    folder = _on_cpu(tmp_path / "net.bundle")
    bundle, x = collage.load(folder), np.ones((4, 4), "float32")
    for call in (lambda: bundle(x, stream=3), lambda: bundle.compute([x], stream=3)):
        with pytest.raises(InputError, match="for a CPU, which has no streams"):
            call()
    done = subprocess.run([program, folder], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stdout == "the bundle is for a CPU, which has no streams\n"
    assert done.stderr == "error: the bundle is for a CPU, which has no streams\n"


def test_an_input_may_be_named_stream(tmp_path: Path) -> None:
    bundle = collage.load(_on_cpu(tmp_path / "net.bundle", "stream"))
    x = np.random.default_rng().standard_normal((4, 4)).astype("float32")
    np.testing.assert_array_equal(bundle(stream=x), x + x)


@pytest.mark.parametrize("stream", [-1, "main", True, 1.5])
def test_what_is_no_stream_is_refused(stream: object) -> None:
    with pytest.raises(InputError, match="must be a cudaStream_t as a number"):
        stream_handle(stream, [], tvm.cuda(0))


@pytest.mark.gpu
@needs_gpu
def test_a_call_comes_after_what_a_stream_holds_and_before_what_it_gets(tmp_path: Path) -> None:
    model, device, driver = gpu_models.convolutions(), tvm.cuda(0), CudaDriver()
    bundle = collage.load(_on_gpu(model.module, tmp_path / "bundle"))
    first, second = device.create_raw_stream(), device.create_raw_stream()
    scratch = tvm.runtime.empty((WORDS,), "float32", device)
    given = [tvm.runtime.tensor(model.input(seed), device) for seed in (1, 2, 3)]
    zeros = np.zeros_like(model.input(0))
    bundle(given[0])  # captures

    def clear_late(tensor: tvm.runtime.Tensor, stream: int) -> None:
        for _ in range(200):
            driver.fill(scratch.data_ptr(), WORDS, stream)
        driver.fill(tensor.data_ptr(), zeros.size, stream)

    begin = time.perf_counter()
    clear_late(given[0], first)
    after = bundle(given[0], stream=first)
    before = bundle(given[1], stream=first)
    driver.fill(given[1].data_ptr(), zeros.size, first)
    other = bundle(given[2], stream=second)
    returned = time.perf_counter() - begin
    for stream in (first, second):
        device.sync(stream)
    assert returned < (time.perf_counter() - begin) / 2, "a call has waited"
    model.check(zeros, after.numpy(), TOLERANCE)
    model.check(model.input(2), before.numpy(), TOLERANCE)
    model.check(model.input(3), other.numpy(), TOLERANCE)
    # Of numpy's arrays too, and without a stream after calls that had one.
    model.check(model.input(4), bundle(model.input(4), stream=first), TOLERANCE)
    model.check(model.input(5), bundle(model.input(5)), TOLERANCE)
    for stream in (first, second):
        device.free_raw_stream(stream)


@pytest.mark.gpu
@pytest.mark.torch
@needs_gpu
@pytest.mark.parametrize("said", [True, False])
def test_streams_of_pytorch(said: bool, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch is for CPUs")
    model = gpu_models.convolutions()
    bundle = collage.load(_on_gpu(model.module, tmp_path / "bundle"))
    wanted = torch.from_numpy(model.input(1)).cuda()
    x = torch.zeros_like(wanted)
    stream = torch.cuda.Stream()

    def calls() -> tuple[Any, Any]:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(400_000_000)
            x.copy_(wanted)
            # Brought in order by PyTorch, on the stream.
            turned = x.transpose(-1, -2).contiguous().transpose(-1, -2)
            first = bundle(turned) if not said else None
        if said:
            first = bundle(turned, stream=stream)
        with torch.cuda.stream(stream):
            second = first * 2
            x.zero_()
        return first, second

    # CUDA loads a kernel when it is first launched, and waits for the device to do so.
    calls()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    first, second = calls()
    returned = time.perf_counter() - begin
    stream.synchronize()
    assert returned < (time.perf_counter() - begin) / 2, "a call has waited"
    model.check(model.input(1), first.cpu().numpy(), TOLERANCE)
    np.testing.assert_array_equal(second.cpu().numpy(), 2 * first.cpu().numpy())


@pytest.mark.gpu
@needs_gpu
def test_streams_without_python(program: Path, tmp_path: Path) -> None:
    weights = constant(2048, 2048, scale=2048**-0.5)
    mod = graph([(2048, 2048)], lambda emit, x: op.tanh(emit(op.matmul(x, weights))))
    bundle = _on_gpu(mod, tmp_path / "bundle")
    cuda = Path(tvm.__file__).parent / "lib"
    paths = [str(cuda), os.environ.get("LD_LIBRARY_PATH", "")]
    paths += [str(path) for entry in sys.path for path in Path(entry).glob("nvidia/*/lib")]
    environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(paths)}
    command = [program, bundle]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "C++ agrees; calls return at once\nC agrees\n"
