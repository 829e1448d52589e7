"""A bundle names the instruction sets of what it was compiled for, whatever machine built it."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm

import collage
from benchmarks.networks.tiny import tiny_mobilenet
from collage.backends.devices import device_of
from collage.backends.devices.cpu_flags import cpu_flags_here, cpu_flags_of


@pytest.mark.parametrize(
    ("attributes", "has", "lacks"),
    [
        ({"mcpu": "x86-64"}, set(), {"sse4_2", "avx"}),
        ({"mcpu": "nehalem"}, {"sse4_2"}, {"avx"}),
        ({"mcpu": "haswell"}, {"avx2", "fma", "f16c", "bmi1", "bmi2"}, {"avx512f"}),
        ({"mcpu": "haswell", "mattr": ["+avx512vnni"]}, {"avx512f", "avx512_vnni"}, {"avx512dq"}),
        ({"mcpu": "haswell", "mattr": ["-fma"]}, {"avx2"}, {"fma"}),
        ({"mcpu": "sapphirerapids"}, {"avx512_bf16", "amx_tile", "amx_int8"}, set()),
    ],
)
def test_flags_are_those_of_the_target(
    attributes: dict[str, object], has: set[str], lacks: set[str]
) -> None:
    target = tvm.target.Target({"kind": "llvm", **attributes})
    flags = set(cpu_flags_of(device_of(target).host_target(target)))
    assert has <= flags and not lacks & flags


def test_the_host_of_a_gpu_needs_nothing_special() -> None:
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    assert cpu_flags_of(device_of(target).host_target(target)) == ()


def test_a_bundle_for_an_older_cpu_loads_where_that_is_enough(tmp_path: Path) -> None:
    older = {"kind": "llvm", "mcpu": "x86-64-v2"}
    result = collage.optimize(tiny_mobilenet(), [older], strategy="single:tvm")
    bundle = collage.load(result.export(tmp_path / "bundle"))
    assert bundle.manifest.cpu_flags == ("sse4_2",)
    assert not cpu_flags_here() or set(bundle.manifest.cpu_flags) <= cpu_flags_here()
