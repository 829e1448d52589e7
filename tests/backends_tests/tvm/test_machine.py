"""What schedules are told of a processor, by its name and features."""

from __future__ import annotations

import pytest
import tvm

from collage.backends.tvm.common.machine import Machine


@pytest.mark.parametrize(
    ("attributes", "vector_bytes", "num_registers"),
    [
        ({"mcpu": "znver3"}, 32, 16),
        ({"mcpu": "haswell"}, 32, 16),
        ({"mcpu": "alderlake"}, 32, 16),
        ({"mcpu": "x86-64-v3"}, 32, 16),
        ({"mcpu": "sandybridge"}, 32, 16),
        ({"mcpu": "nehalem"}, 16, 16),
        ({"mcpu": "znver4"}, 64, 32),
        ({"mcpu": "skylake-avx512"}, 64, 32),
        ({"mcpu": "sapphirerapids"}, 64, 32),
        ({"mcpu": "znver4", "mattr": ["-avx512f"]}, 32, 16),
        ({"mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"}, 16, 32),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else str(value),
)
def test_vectors_are_those_of_the_processor(
    attributes: dict[str, object], vector_bytes: int, num_registers: int
) -> None:
    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", **attributes})
    assert Machine.of_target(target, 4) == Machine(vector_bytes, num_registers, 4)
