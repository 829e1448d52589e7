"""Targets as users write them."""

from __future__ import annotations

from typing import Any

import pytest
import tvm

from collage.backends.contract import (
    Availability,
    BackendTarget,
    BuildContext,
    NativeBackend,
    PatternTriple,
    backend_names,
    get_backend,
    registry,
)
from collage.backends.contract.errors import TargetError
from collage.backends.devices import device_of
from collage.backends.toolchain.cuda_runtime import has_device
from collage.targets import parse_target_text, parse_targets, resolve_targets, usable_targets


def test_tvm_comes_first_and_a_bare_llvm_means_this_cpu() -> None:
    resolved = resolve_targets(["onednn", "llvm"])
    assert [target.backend for target in resolved] == ["tvm", "onednn"]
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    assert resolved[0].device.export()["mcpu"] == cpu


def test_without_a_device_target_the_host_is_meant() -> None:
    assert resolve_targets(["openblas"])[0].device.kind.name == "llvm"


def test_without_any_all_libraries_for_a_cpu_take_part() -> None:
    usable = {
        name
        for name in backend_names()
        if get_backend(name).device == "cpu" and get_backend(name).probe().usable
    }
    assert set(resolve_targets(None).names) == usable
    assert resolve_targets(parse_targets([])).names == resolve_targets(None).names
    assert set(usable_targets()) == {"llvm", *usable} - {"tvm"}
    assert parse_targets(["openblas"]) == ["openblas"]


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
        (["llvm,onednn"], "unknown target 'llvm,onednn'; each is given for itself"),
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


def test_one_backend_takes_part_under_several_names() -> None:
    named = {"kind": "onednn", "name": "last", "layout": "nhwc"}
    targets = resolve_targets(["onednn", named, "onednn:name=first,layout=blocked"])
    assert targets.names == ("tvm", "onednn", "last", "first")
    assert [target.backend for target in targets] == ["tvm", *["onednn"] * 3]
    assert targets.named("last").options.layout == "nhwc"
    assert len({target.key() for target in targets}) == 4
    assert resolve_targets(list(targets)) == targets
    # A name alone tells targets apart, too, and that of its backend is none.
    assert resolve_targets([{"kind": "onednn", "name": "other"}])[1] != targets[1]
    assert resolve_targets([{"kind": "onednn", "name": "onednn"}])[1] == targets[1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("openblas", "cannot be named 'openblas', which is another target's kind"),
        ("tvm", "cannot be named 'tvm'"),
        ("llvm", "cannot be named 'llvm'"),
        ("two words", "cannot name a target: it is no identifier"),
        (7, "7 cannot name a target"),
    ],
)
def test_a_name_that_means_something_else_is_refused(name: object, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        resolve_targets([{"kind": "onednn", "name": name}])


@pytest.mark.cuda
def test_the_host_that_a_user_names_is_kept() -> None:
    host = {"kind": "llvm", "mcpu": "x86-64-v3"}
    given = {"kind": "cuda", "arch": "sm_90a"}
    for device in (tvm.target.Target(given, host=host), {**given, "host": host}):
        for target in resolve_targets([device, "cublas"]):
            assert str(target.device.host.attrs["mcpu"]) == "x86-64-v3"
            hosted = device_of(target.device).host_target(target.device)
            assert str(hosted.attrs["mcpu"]) == "x86-64-v3"
            assert str(target.scope.host.attrs["mcpu"]) == "x86-64-v3"


def test_a_target_is_what_its_scope_says() -> None:
    named = {"kind": "openblas", "name": "plain", "epilogues": False}
    for target in resolve_targets(["openblas", "onednn", named]).external:
        with target.scope:
            current = tvm.target.Target.current()
            assert BackendTarget.current() == target
            assert current.kind.name == "llvm" and current.attrs["mcpu"]
            for option, value in target.option_dict().items():
                assert value is None or current.attrs[f"feature.{option}"] == value
        assert BackendTarget.current() is None


def test_a_ready_made_target_brings_its_device() -> None:
    device = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})
    made = BackendTarget.of("openblas", device)
    for targets in ([made], [made, "onednn"], [device, made], resolve_targets([made])[:]):
        assert {str(t.device.attrs["mcpu"]) for t in resolve_targets(targets)} == {"x86-64-v3"}
    older = {"kind": "llvm", "mcpu": "x86-64-v2"}
    for targets in ([older, made], [made, BackendTarget.of("onednn", tvm.target.Target(older))]):
        with pytest.raises(TargetError, match="for one device"):
            resolve_targets(targets)


class SecondNative(NativeBackend):
    """Would have what TVM has, and be taken for it."""

    name = "second_native"

    def probe(self) -> Availability:
        return Availability(True)

    def patterns(self, target: BackendTarget) -> list[PatternTriple]:
        return []

    def lower(
        self, mod: tvm.IRModule, target: BackendTarget, context: BuildContext
    ) -> tvm.IRModule:
        return mod


def test_a_second_backend_that_has_what_is_left_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backends = {name: get_backend(name) for name in backend_names()}
    monkeypatch.setattr(registry, "_backends", {**backends, "second_native": SecondNative()})
    with pytest.raises(TargetError, match=r"only one can have what no other takes.*TensorBackend"):
        resolve_targets(["llvm", "second_native"])
