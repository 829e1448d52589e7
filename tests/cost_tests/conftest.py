"""What the tests of measuring share."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tvm
from tvm.relax import op

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.registry import backend_names, get_backend, register_backend
from collage.cost.config import MeasureConfig
from collage.cost.workload.workload import Workload
from collage.testing.fixtures.misbehaving import misbehaving_job
from collage.testing.runner_contract import Library
from tests.cost_tests.support import external_partition, native_partition, tensor
from tests.cost_tests.toy_backend import ToyBackend
from tests.object_cache import cache_with_objects

ToyTarget = Callable[..., BackendTarget]


@pytest.fixture(autouse=True)
def own_device_lock(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests look at what comes out, not at how fast: they need not wait for real searches."""
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("locks")))
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cache_with_objects(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def context(cache_dir: Path, tmp_path: Path) -> BuildContext:
    return BuildContext(cache_dir=cache_dir, work_dir=tmp_path / "work", num_threads=1)


@pytest.fixture
def config() -> MeasureConfig:
    """Short limits: what hangs here hangs for good, what eats memory eats fast."""
    return MeasureConfig(
        repeat=3,
        min_repeat=2,
        min_repeat_sec=0.002,
        warmup_sec=0.002,
        build_timeout_sec=20.0,
        run_timeout_sec=4.0,
        memory_limit_bytes=512 << 20,
    )


@pytest.fixture
def toy() -> Iterator[ToyTarget]:
    """Makes targets of the toy backend."""
    if "toy" not in backend_names():
        register_backend(ToyBackend())

    def make(**attributes: str) -> BackendTarget:
        options = get_backend("toy").parse_options(attributes)
        return BackendTarget("toy", tvm.target.Target("llvm"), options)

    yield make


@pytest.fixture
def library(context: BuildContext, tmp_path: Path) -> Library:
    """Makes a library whose kernel behaves as named, with its test data."""
    return lambda behaviour: misbehaving_job(behaviour, tmp_path / behaviour, context)


@pytest.fixture
def tvm_target() -> BackendTarget:
    options = get_backend("tvm").parse_options({})
    return BackendTarget("tvm", tvm.target.Target("llvm"), options)


def toy_workload(*shape: int) -> Workload:
    return Workload.from_module(
        external_partition("toy", [tensor("x", *shape)], op.nn.relu, "toy.relu")
    )


def tvm_workload(*shape: int) -> Workload:
    return Workload.from_module(native_partition([tensor("x", *shape)], op.nn.relu))
