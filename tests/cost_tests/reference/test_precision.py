"""How closely a result must agree follows from what its backend says, not from options' names."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import tvm

from collage.backends.contract import BackendTarget, Precision, registry
from collage.backends.openblas.backend import OpenBLASBackend
from collage.cost.reference.precision import allows_half, is_half
from tests.cost_tests.conftest import tvm_workload


@dataclass(frozen=True)
class FastOptions:
    fast_bf16: bool = False
    use_fp16: bool = False


class FastBackend(OpenBLASBackend):
    """A third party's: one option costs digits, the other is called as if it did."""

    name = "fast"
    options_type = FastOptions

    def precision(self, options: FastOptions) -> Precision:
        return Precision.HALF if options.fast_bf16 else Precision.FLOAT32


def test_a_third_party_says_which_of_its_options_cost_digits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry.backend_names()
    monkeypatch.setitem(registry._backends, "fast", FastBackend())

    def target(**options: bool) -> BackendTarget:
        return BackendTarget("fast", tvm.target.Target("llvm"), FastOptions(**options))

    assert not allows_half([target(), target(use_fp16=True)])
    assert allows_half([target(), target(fast_bf16=True)])
    assert is_half(tvm_workload(2, 2), target(fast_bf16=True))
    assert not is_half(tvm_workload(2, 2), target())
