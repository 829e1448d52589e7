"""The set of targets of one module: native first, one device, each with its backend."""

from __future__ import annotations

import pytest
import tvm

from collage.backends.contract import (
    BackendTarget,
    ExternalBackend,
    NativeBackend,
    TargetSet,
    is_external_codegen_for,
    is_native,
    members_of,
)
from collage.backends.contract.errors import TargetError
from collage.backends.contract.registry import get_backend

LLVM = tvm.target.Target("llvm")
NATIVE = BackendTarget("tvm", LLVM)
ONEDNN, OPENBLAS = BackendTarget("onednn", LLVM), BackendTarget("openblas", LLVM)


def test_is_a_sequence_with_the_native_target_first() -> None:
    targets = TargetSet.of([ONEDNN, NATIVE, OPENBLAS])
    assert (targets.native, targets.external) == (NATIVE, (ONEDNN, OPENBLAS))
    assert list(targets) == [NATIVE, ONEDNN, OPENBLAS] and len(targets) == 3
    assert targets[-1] == OPENBLAS and targets[1:] == (ONEDNN, OPENBLAS)
    assert targets.names == ("tvm", "onednn", "openblas")
    assert TargetSet.of(targets) is targets


def test_members_know_their_backends() -> None:
    targets = TargetSet(NATIVE, (ONEDNN,))
    assert targets.native.implementation is get_backend("tvm")
    assert members_of(NativeBackend, targets) == [(get_backend("tvm"), NATIVE)]
    assert members_of(ExternalBackend, targets) == [(get_backend("onednn"), ONEDNN)]
    assert is_native(NATIVE) and not is_native(ONEDNN)


def test_a_target_is_found_by_its_backend() -> None:
    targets = TargetSet(NATIVE, (ONEDNN,))
    assert targets.named("onednn") == ONEDNN
    with pytest.raises(TargetError, match="'openblas' is none of these targets: tvm, onednn"):
        targets.named("openblas")


@pytest.mark.parametrize("members", [[], [ONEDNN], [NATIVE, NATIVE]])
def test_exactly_one_compiles_through_tvm(members: list[BackendTarget]) -> None:
    with pytest.raises(TargetError, match="give exactly one, for example 'llvm'"):
        TargetSet.of(members)


def test_targets_of_several_kinds_of_devices_are_refused() -> None:
    gpu = BackendTarget("cublas", tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}))
    with pytest.raises(TargetError, match="'cublas' is for 'cuda', the others are for 'llvm'"):
        TargetSet(NATIVE, (gpu,))


def test_an_unknown_backend_is_an_error_when_it_is_asked_for() -> None:
    with pytest.raises(TargetError, match="no backend 'nobody'"):
        _ = BackendTarget("nobody", LLVM).implementation


def test_a_target_is_made_from_a_users_attributes() -> None:
    plain = BackendTarget.of("onednn", LLVM)
    assert plain.options == get_backend("onednn").parse_options({})
    assert BackendTarget.of("onednn", LLVM, {"layout": "nhwc"}).option_dict()["layout"] == "nhwc"
    with pytest.raises(TargetError, match="nonsense"):
        BackendTarget.of("onednn", LLVM, {"nonsense": 1})


def test_targets_of_one_backend_need_names() -> None:
    second = BackendTarget.of("onednn", LLVM, {"layout": "nhwc"}, "second")
    assert TargetSet(NATIVE, (ONEDNN, second)).named("second") == second
    with pytest.raises(TargetError, match="'onednn' is given twice"):
        TargetSet(NATIVE, (ONEDNN, BackendTarget.of("onednn", LLVM, {"layout": "nhwc"})))


def test_an_external_target_takes_part_of_a_plain_ones_work() -> None:
    gpu = BackendTarget("tvm", tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}))
    assert is_external_codegen_for(ONEDNN, NATIVE)
    assert not is_external_codegen_for(NATIVE, NATIVE)
    assert not is_external_codegen_for(ONEDNN, OPENBLAS)
    assert not is_external_codegen_for(ONEDNN, gpu)
