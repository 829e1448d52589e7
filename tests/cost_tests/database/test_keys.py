"""Keys of whole models, and what of a backend's code counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.contract.registry import get_backend
from collage.cost.database import keys
from collage.cost.database.keys import ModuleKeys, code_digest
from collage.cost.device import CPU_POLICY, available_cores, resolve_threads
from collage.cost.workload.workload import Workload
from tests.cost_tests import toy_backend
from tests.cost_tests.support import native_partition, tensor


def dense(values: np.ndarray, name: str = "x") -> tvm.IRModule:
    weight = relax.const(values)
    return native_partition([tensor(name, 2, 3)], lambda x: op.matmul(x, weight))


def test_a_whole_model_s_weights_are_part_of_its_key() -> None:
    """Its outputs are compared with this very model's, so another's time is no answer."""
    maker = ModuleKeys()
    first = np.arange(12).reshape(3, 4).astype("float32")
    second = first.copy()
    second[1, 1] += 1
    assert maker.key(dense(first)) == maker.key(dense(first.copy(), "other_name"))
    assert maker.key(dense(first)) != maker.key(dense(second))
    assert maker.key(dense(first)) == ModuleKeys().key(dense(first))
    assert Workload.from_module(dense(first)).key == Workload.from_module(dense(second)).key


def test_a_backend_s_code_is_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tvm_digest = code_digest(get_backend("tvm"))
    assert tvm_digest == code_digest(get_backend("tvm"))
    assert tvm_digest != code_digest(get_backend("openblas"))
    copy = tmp_path / "toy.py"
    copy.write_text(Path(toy_backend.__file__).read_text())
    monkeypatch.setattr(toy_backend, "__file__", str(copy))
    before = code_digest(toy_backend.ToyBackend())
    copy.write_text(copy.read_text() + "# changed\n")
    assert code_digest(toy_backend.ToyBackend()) != before


def test_what_all_backends_share_is_part_of_every_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "backends"
    (shared / "toolchain" / "templates").mkdir(parents=True)
    (shared / "toolchain" / "native.py").write_text("one")
    monkeypatch.setattr(keys, "_BACKENDS", shared)
    before = code_digest(get_backend("tvm"))
    (shared / "toolchain" / "templates" / "thread_pool.c").write_text("two")
    assert code_digest(get_backend("tvm")) != before


def test_the_device_has_a_name_and_cores() -> None:
    device = CPU_POLICY.detect()
    assert device.kind == "cpu" and device.name and device.driver == "none"
    assert device.cores == available_cores() == resolve_threads(0) >= 1
    assert resolve_threads(3) == 3
    assert CPU_POLICY.detect() == device
