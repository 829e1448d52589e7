"""How closely a result must agree follows from what its backend says, not from options' names."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import tvm

from collage.backends.contract import BackendTarget, Precision, registry
from collage.backends.openblas.backend import OpenBLASBackend
from collage.cost.reference.rounding import fewest_digits


@dataclass(frozen=True)
class FastOptions:
    fast_bf16: bool = False
    use_fp16: bool = False


class FastBackend(OpenBLASBackend):
    """A third party's: one option costs digits, the other is called as if it did."""

    name = "fast"
    options_type = FastOptions

    def precision(self, options: FastOptions) -> Precision:
        return Precision.BFLOAT16 if options.fast_bf16 else Precision.FLOAT32


def test_a_third_party_says_which_of_its_options_cost_digits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry.backend_names()
    monkeypatch.setitem(registry._backends, "fast", FastBackend())

    def target(**options: bool) -> BackendTarget:
        return BackendTarget("fast", tvm.target.Target("llvm"), FastOptions(**options))

    assert fewest_digits([target(), target(use_fp16=True)]) == "float32"
    assert fewest_digits([target(), target(fast_bf16=True)]) == "bfloat16"
