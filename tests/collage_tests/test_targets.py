"""Targets as users write them."""

from __future__ import annotations

from typing import Any

import pytest
import tvm

from collage.backends.contract.errors import TargetError
from collage.backends.toolchain.cuda_runtime import has_device
from collage.targets import parse_target_text, resolve_targets


def test_tvm_comes_first_and_a_bare_llvm_means_this_cpu() -> None:
    resolved = resolve_targets(["onednn", "llvm"])
    assert [target.backend for target in resolved] == ["tvm", "onednn"]
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    assert resolved[0].device.export()["mcpu"] == cpu


def test_without_a_device_target_the_host_is_meant() -> None:
    assert resolve_targets(["openblas"])[0].device.kind.name == "llvm"


def test_names_dicts_text_and_tvm_targets_mix() -> None:
    device = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})
    resolved = resolve_targets([device, {"kind": "onednn"}, '{"kind": "openblas"}'])
    assert [target.backend for target in resolved] == ["tvm", "onednn", "openblas"]
    assert {str(t.device.export()["mcpu"]) for t in resolved} == {"x86-64-v3"}


def test_equal_targets_have_equal_keys_and_different_options_different_ones() -> None:
    plain, again = (resolve_targets(["openblas"])[1] for _ in range(2))
    assert plain == again and hash(plain) == hash(again)
    assert resolve_targets([{"kind": "llvm", "mcpu": "x86-64-v2"}, "openblas"])[1] != plain


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["nonsense"], "unknown target 'nonsense'; known targets: llvm, cuda, tvm, onednn"),
        ([{"kind": "onednn", "colour": 1}], "no attribute 'colour'; valid attributes:"),
        (["onednn", "onednn"], "'onednn' is given twice"),
        (["llvm", "c"], "two device targets are given"),
        (["c"], "device target 'c' is not supported"),
        (["llvm -mcpu=znver4"], "write attributes as a dict"),
        ([{"mcpu": "znver4"}], "has no 'kind'"),
        ([{"kind": "llvm", "colour": 1}], "is not valid"),
        ([7], "a target is a name, a dict or a tvm.target.Target, not int"),
        (['{"kind": '], "is not valid JSON"),
    ],
)
def test_a_wrong_target_is_one_clear_line(targets: list[Any], message: str) -> None:
    with pytest.raises(TargetError, match=message) as caught:
        resolve_targets(targets)
    assert "\n" not in str(caught.value)
    assert caught.value.value is not None or "not valid" in message


@pytest.mark.skipif(has_device(), reason="there is a CUDA device here")
def test_a_bare_cuda_needs_a_gpu_to_ask_for_its_architecture() -> None:
    with pytest.raises(TargetError, match="'cuda' needs an architecture"):
        resolve_targets(["cuda"])


def test_a_cuda_target_with_an_architecture_needs_no_gpu() -> None:
    (resolved,) = resolve_targets(["cuda:arch=sm_90a"])
    assert resolved.backend == "tvm"
    assert resolved.device.attrs["arch"] == "sm_90a"
    assert int(resolved.device.attrs["max_threads_per_block"]) == 1024


def test_an_external_target_on_the_wrong_device_names_the_one_it_needs() -> None:
    with pytest.raises(
        TargetError, match="'onednn' runs on cpu and needs the device target 'llvm'"
    ):
        resolve_targets([{"kind": "cuda", "arch": "sm_90"}, "onednn"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("onednn", "onednn"),
        ("onednn:a=1,b=true,c=x", {"kind": "onednn", "a": 1, "b": True, "c": "x"}),
        ('{"kind": "llvm", "mcpu": "znver4"}', {"kind": "llvm", "mcpu": "znver4"}),
    ],
)
def test_target_text(text: str, value: object) -> None:
    assert parse_target_text(text) == value


@pytest.mark.parametrize("text", ["", "onednn:a", "onednn:=1", "{oops"])
def test_ill_formed_target_text(text: str) -> None:
    with pytest.raises(TargetError):
        parse_target_text(text)


def test_the_targets_of_a_result_are_targets_again() -> None:
    targets = resolve_targets(["llvm", "openblas"])
    assert resolve_targets(targets) is targets
