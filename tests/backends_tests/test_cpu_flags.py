"""A bundle names the instruction sets of what it was compiled for, whatever machine built it."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm

import collage
from benchmarks.networks.tiny import tiny_mobilenet
from collage.backends.devices import cpu_flags, device_of
from collage.backends.devices.cpu_flags import cpu_flags_here, cpu_flags_of
from collage.targets import resolve_targets


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


@pytest.mark.skipif(not cpu_flags_here(), reason="nothing here tells what the processor has")
def test_code_for_this_processor_uses_nothing_that_it_lacks() -> None:
    native = resolve_targets(["llvm"]).native.device
    assert set(cpu_flags_of(native)) <= cpu_flags_here()


@pytest.mark.parametrize("hidden", ["avx512f", "avx2", "fma", "gfni"])
def test_what_a_virtual_machine_hides_is_left_out(
    hidden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = set(cpu_flags_of(tvm.target.Target({"kind": "llvm", "mcpu": "znver4"}))) - {hidden}
    monkeypatch.setattr(cpu_flags, "cpu_flags_here", lambda: frozenset(shown))
    left_out = cpu_flags.lacking_here("znver4")
    assert f"-{hidden}" in left_out
    target = tvm.target.Target({"kind": "llvm", "mcpu": "znver4", "mattr": list(left_out)})
    assert set(cpu_flags_of(target)) <= shown
    assert cpu_flags.lacking_here("x86-64") == ()


@pytest.mark.parametrize("more", ["", ",mcpu=haswell"])
def test_features_may_be_written_as_text(more: str) -> None:
    native = resolve_targets([f"llvm:mattr=-fma{more}"]).native.device
    assert "fma" not in cpu_flags_of(native)
