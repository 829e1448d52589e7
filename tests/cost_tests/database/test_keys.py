"""Keys of whole models, and what of a backend's code counts."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BackendTarget, BuildContext
from collage.cost.config import MeasureConfig
from collage.cost.database.keys import KeyMaker, ModuleKeys
from collage.cost.database.record import RecordKey
from collage.cost.device import CPU_POLICY, available_cores
from collage.cost.workload.workload import Workload
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


def test_a_backend_s_sources_are_part_of_the_key(
    context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = Workload.from_module(dense(np.ones((3, 4), "float32")))
    target = BackendTarget.of("tvm", tvm.target.Target("llvm"))

    def key() -> RecordKey:
        return KeyMaker(context, MeasureConfig(), CPU_POLICY.detect()).partition(workload, target)

    assert key() == key()
    before = key()
    monkeypatch.setattr(type(target.implementation), "source_digest", lambda _: "another")
    assert key() != before
    assert dict(key().versions)["tvm codegen"] == "another"


def test_the_device_has_a_name_and_cores() -> None:
    device = CPU_POLICY.detect()
    assert device.kind == "cpu" and device.name and device.driver == "none"
    assert device.cores == available_cores() >= 1
    assert CPU_POLICY.detect() == device
