"""Targets as a user writes them: names, dicts, JSON text and ``tvm.target.Target`` alike."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import tvm

from collage.backends.contract import BackendTarget, TargetSet, is_native
from collage.backends.contract.errors import BackendUnavailableError, TargetError, last_line
from collage.backends.contract.registry import backend_names, get_backend
from collage.backends.devices import CPU, DEVICE_KINDS, DeviceKind, device_named, device_of
from collage.backends.link import library_requirements

TargetLike: TypeAlias = str | Mapping[str, Any] | tvm.target.Target | BackendTarget


def resolve_targets(targets: Sequence[TargetLike] | None) -> TargetSet:
    """Turn what the user gave into validated backend targets.

    TVM itself always takes part: where no device target is given, the host CPU is meant.

    Parameters
    ----------
    targets : sequence or None
        TVM targets (``"llvm"``, ``tvm.target.Target(...)``) and external codegen targets
        (``"onednn"``, ``{"kind": "onednn", "layout": "nhwc"}``); or an earlier result's set. A
        backend may take part several times, with other attributes under another ``name``. Without
        any, those of :func:`usable_targets` for a CPU.

    Raises
    ------
    TargetError
        Unknown kind or attribute, a target given twice, or no matching device.
    BackendUnavailableError
        The backend's library is not installed; the message has the line that mends it.
    """
    if isinstance(targets, TargetSet):
        return targets
    if targets is None:
        targets = usable_targets()
    if isinstance(targets, str | Mapping | tvm.target.Target):
        targets = [targets]
    device: tvm.target.Target | None = None
    external: list[tuple[str, str, dict[str, Any]]] = []
    native_options: dict[str, Any] = {}
    made: list[BackendTarget] = []
    for target in targets:
        if isinstance(target, BackendTarget):
            made.append(target)
            if is_native(target):
                native_options = target.option_dict()
                continue
            target = {"kind": target.backend, "name": target.name, **target.option_dict()}
        if isinstance(target, tvm.target.Target):
            device = _one_device(device, target)
            continue
        kind, attributes = _split(target)
        if kind in tvm.target.Target.list_kinds():
            device = _one_device(device, _device_target(kind, attributes))
        elif kind == "tvm":
            native_options = attributes
        elif kind in backend_names():
            external.append((kind, _name(kind, attributes), attributes))
        else:
            known = ", ".join([*(k.target_kind for k in DEVICE_KINDS), *backend_names()])
            apart = "; each is given for itself (-t llvm -t onednn)" if "," in kind else ""
            raise TargetError(f"unknown target '{kind}'{apart}; known targets: {known}", value=kind)
    device = _device_of(made, device) or _device_target(CPU.target_kind, {})
    device_kind = device_of(device)
    for kind, _, _ in external:
        _check_device(kind, device_kind)
    native = BackendTarget.of("tvm", device, native_options)
    members = [BackendTarget.of(kind, device, given, name) for kind, name, given in external]
    found = TargetSet(native, tuple(members))
    for target in found.external:
        _require_usable(target)
    return found


def usable_targets(device: str = CPU.name) -> list[TargetLike]:
    """All that is usable here for a kind of device and can be loaded together.

    Parameters
    ----------
    device : str
        ``cpu`` or ``cuda``.

    Returns
    -------
    list
        The device's own target first, then the libraries in the order of ``collage backends``.

    Raises
    ------
    TargetError
        When there is no such kind.

    Examples
    --------
    >>> usable_targets()[0]
    'llvm'
    """
    kind = device_named(device)
    chosen: list[TargetLike] = [kind.target_kind]
    for name in backend_names():
        backend = get_backend(name)
        if name == "tvm" or backend.device != device or not backend.probe().usable:
            continue
        try:
            library_requirements(resolve_targets([*chosen, name]))
        except TargetError:
            continue  # It cannot be in one process with those before it.
        chosen.append(name)
    return chosen


def _name(kind: str, attributes: dict[str, Any]) -> str:
    """The name among a target's attributes, taken out of them; the backend's where there is none.

    It stands in the names of functions, and for one thing alone wherever names are shown.
    """
    name = attributes.pop("name", kind)
    if not isinstance(name, str) or not name.isidentifier():
        raise TargetError(f"{name!r} cannot name a target: it is no identifier", value=name)
    if name != kind and (name in backend_names() or name in tvm.target.Target.list_kinds()):
        raise TargetError(
            f"a target of '{kind}' cannot be named '{name}', which is another target's kind",
            value=name,
        )
    return name


def _require_usable(target: BackendTarget) -> None:
    if is_native(target):
        raise TargetError(
            f"'{target.name}' compiles through TVM as 'tvm' does, and only one can have what no "
            "other takes; a backend that lowers partitions of its own to tensor programs is a "
            "collage.backends.contract.TensorBackend",
            value=target.name,
        )
    available = target.implementation.probe()
    if not available.usable:
        raise BackendUnavailableError(
            f"target '{target.backend}' cannot be used here: {available.reason}",
            remedy=available.remedy,
            value=target.backend,
        )


def parse_target_text(text: str) -> TargetLike:
    """A target from the command line: ``name``, ``name:attr=value,...`` or a JSON object.

    Raises
    ------
    TargetError
        When the text is none of these.
    """
    text = text.strip()
    if text.startswith("{"):
        try:
            value = json.loads(text)
        except json.JSONDecodeError as err:
            raise TargetError(f"target {text} is not valid JSON: {err}", value=text) from err
        return dict(value)
    name, colon, rest = text.partition(":")
    if not name:
        raise TargetError("a target needs a name, for example 'llvm' or 'onednn'", value=text)
    if not colon:
        return name
    attributes: dict[str, Any] = {"kind": name}
    for pair in rest.split(","):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise TargetError(
                f"target '{text}': expected attribute=value, got '{pair}'", value=text
            )
        attributes[key] = _plain_value(value)
    return attributes


def parse_targets(texts: Sequence[str] | None) -> list[TargetLike] | None:
    """Targets from the command line; None, which means all that are usable, where there are none.

    Raises
    ------
    TargetError
        When a text is no target.
    """
    return [parse_target_text(text) for text in texts] if texts else None


def _plain_value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _split(target: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(target, str):
        if target.lstrip().startswith("{") or ":" in target:
            return _split(parse_target_text(target))
        if " " in target.strip():
            raise TargetError(
                f"target '{target}': write attributes as a dict, for example "
                f"{{'kind': '{target.split()[0]}', ...}}",
                value=target,
            )
        return target.strip(), {}
    if not isinstance(target, Mapping):
        raise TargetError(
            f"a target is a name, a dict or a tvm.target.Target, not {type(target).__name__}",
            value=target,
        )
    attributes = dict(target)
    kind = attributes.pop("kind", None)
    if not isinstance(kind, str):
        raise TargetError(f"target {dict(target)!r} has no 'kind'", value=target)
    return kind, attributes


def _device_target(kind: str, attributes: Mapping[str, Any]) -> tvm.target.Target:
    attributes = {"kind": kind, **attributes}
    for device in DEVICE_KINDS:
        if device.target_kind == kind:
            attributes = device.complete(attributes)
    try:
        return tvm.target.Target(attributes)
    except (ValueError, TypeError, RuntimeError) as err:
        raise TargetError(
            f"target {dict(attributes)!r} is not valid: {last_line(err)}", value=attributes
        ) from err


def _one_device(device: tvm.target.Target | None, other: tvm.target.Target) -> tvm.target.Target:
    if device is not None:
        raise TargetError(
            f"two device targets are given, '{device.kind.name}' and '{other.kind.name}'; "
            "give one and any number of external targets",
            value=other,
        )
    return other


def _device_of(
    made: Sequence[BackendTarget], device: tvm.target.Target | None
) -> tvm.target.Target | None:
    """The one device of ready-made targets and of what else was given."""
    for target in made:
        if device is not None and device.export() != target.device.export():
            raise TargetError(
                f"target '{target.name}' is made for the device '{target.device}', but '{device}' "
                "is given as well; all targets of a search are for one device",
                value=target,
            )
        device = target.device
    return device


def _check_device(backend: str, kind: DeviceKind) -> None:
    needed = device_named(get_backend(backend).device)
    if needed is not kind:
        raise TargetError(
            f"target '{backend}' runs on {needed.name} and needs the device target "
            f"'{needed.target_kind}', but '{kind.target_kind}' is given",
            value=backend,
        )
