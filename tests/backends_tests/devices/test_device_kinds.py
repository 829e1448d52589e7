"""What differs between kinds of devices is asked of one object each."""

from __future__ import annotations

import pytest
import tvm

from collage.backends.contract import BackendTarget
from collage.backends.contract.errors import BackendUnavailableError, TargetError
from collage.backends.devices import (
    CPU,
    CUDA,
    DEVICE_KINDS,
    DeviceKind,
    common_device,
    cuda,
    device_named,
    device_of,
)
from collage.backends.toolchain.cuda_runtime import Gpu
from collage.cost.device import POLICIES, policy_of

LLVM = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})
SM90 = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})


def test_each_kind_is_found_by_its_target_and_by_its_name() -> None:
    assert device_of(LLVM) is CPU and device_of(SM90) is CUDA
    for kind in DEVICE_KINDS:
        assert device_named(kind.name) is kind and device_of(kind.any_target()) is kind
    with pytest.raises(TargetError, match="'c' is not supported; supported: llvm, cuda"):
        device_of(tvm.target.Target("c"))
    with pytest.raises(TargetError, match="no kind of device 'tpu'; known: cpu, cuda"):
        device_named("tpu")


def test_targets_have_one_kind_in_common() -> None:
    cpu, gpu = BackendTarget("tvm", LLVM), BackendTarget("tvm", SM90)
    assert common_device([cpu, cpu]) is CPU and common_device([gpu]) is CUDA
    with pytest.raises(TargetError, match="several kinds"):
        common_device([cpu, gpu])


def test_every_kind_is_measured_by_a_policy_and_no_other_is() -> None:
    assert tuple(policy.kind for policy in POLICIES) == DEVICE_KINDS

    class Other(type(CPU)):  # type: ignore[misc]
        name = "other"

    with pytest.raises(TargetError, match="nothing can be measured on 'other' devices"):
        policy_of(Other())


def test_a_bare_cpu_target_means_this_machine() -> None:
    here = str(tvm.target.codegen.llvm_get_system_cpu())
    assert CPU.complete({"kind": "llvm"})["mcpu"] == here
    assert CPU.complete({"kind": "llvm", "mcpu": "x86-64"})["mcpu"] == "x86-64"
    assert CPU.architecture(LLVM) == "x86-64-v3" and CPU.unfit("x86-64-v3") == ""


def with_gpu(monkeypatch: pytest.MonkeyPatch, gpu: Gpu | None) -> DeviceKind:
    monkeypatch.setattr(cuda, "load_runtime", lambda: None)
    monkeypatch.setattr(cuda, "find_gpu", lambda: gpu)
    return CUDA


@pytest.mark.parametrize(
    ("mcpu", "triple", "said"),
    [
        ("znver9", "", "knows no processor 'znver9'; did you mean znver"),
        ("cortex-a72", "", "knows no processor 'cortex-a72'"),
        ("quantum", "", "leave mcpu out for this machine's"),
        ("znver4", "aarch64-linux-gnu", "knows no processor 'znver4'"),
    ],
)
def test_a_processor_that_llvm_does_not_know_is_named(mcpu: str, triple: str, said: str) -> None:
    """LLVM compiles for any then, without a word."""
    with pytest.raises(TargetError, match=said) as info:
        CPU.complete({"mcpu": mcpu, **({"mtriple": triple} if triple else {})})
    assert info.value.value == mcpu


def test_processors_of_another_machine_are_known_by_its_triple() -> None:
    given = {"mcpu": "cortex-a72", "mtriple": "aarch64-linux-gnu"}
    assert CPU.complete(given) == given


def test_a_bare_cuda_target_means_the_gpu_that_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = with_gpu(monkeypatch, Gpu("NVIDIA H200", 90, 132, 1 << 37))
    assert kind.complete({"kind": "cuda"})["arch"] == "sm_90a"
    assert kind.complete({"kind": "cuda", "arch": "sm_80"})["arch"] == "sm_80"
    with_gpu(monkeypatch, Gpu("NVIDIA A100", 80, 108, 1 << 36))
    assert kind.complete({"kind": "cuda"})["arch"] == "sm_80"
    with_gpu(monkeypatch, None)
    with pytest.raises(TargetError, match="needs an architecture"):
        kind.complete({"kind": "cuda"})


def test_why_something_cannot_run_here_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = with_gpu(monkeypatch, Gpu("NVIDIA A100", 80, 108, 1 << 36))
    assert kind.unfit("sm_80") == ""
    assert kind.unfit("sm_90a") == (
        "was compiled for sm_90a, the GPU here is sm_80: optimize the model for sm_80"
    )
    with_gpu(monkeypatch, None)
    assert kind.unfit("sm_80") == "runs on a GPU, and there is none here"

    def no_driver() -> None:
        raise BackendUnavailableError("this machine has no driver")

    monkeypatch.setattr(cuda, "load_runtime", no_driver)
    assert kind.unfit("sm_80") == "runs on a GPU: this machine has no driver"
