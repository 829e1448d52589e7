"""The targets that one module is compiled for: one that compiles through TVM, and the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from collage.backends.contract.backend import NativeBackend
from collage.backends.contract.errors import TargetError
from collage.backends.contract.target import BackendTarget
from collage.backends.devices import DeviceKind, device_of

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class TargetSet(Sequence[BackendTarget]):
    """The targets of one search: a sequence of them, the native one first.

    Attributes
    ----------
    native : BackendTarget
        Of the backend that compiles through TVM: it can run every operator, so it runs what no
        other takes.
    external : tuple of BackendTarget
        Of the backends that bring a library, in the order that the user gave.

    Raises
    ------
    TargetError
        When the targets are not for one and the same device.

    Examples
    --------
    >>> import tvm
    >>> cpu = tvm.target.Target("llvm")
    >>> targets = TargetSet.of([BackendTarget.of(name, cpu) for name in ("onednn", "tvm")])
    >>> targets.names, targets.device, targets.named("onednn") in targets.external
    (('tvm', 'onednn'), cpu, True)
    """

    native: BackendTarget
    external: tuple[BackendTarget, ...] = ()

    def __post_init__(self) -> None:
        for target in self.external:
            if device_of(target.device) is not self.device:
                raise TargetError(
                    f"target '{target.name}' is for '{target.device.kind.name}', the others are "
                    f"for '{self.device.target_kind}'; targets of several kinds of devices "
                    "cannot be used together",
                    value=target.key(),
                )
        twice = [name for name, count in Counter(self.names).items() if count > 1]
        if twice:
            raise TargetError(
                f"target '{twice[0]}' is given twice; a second one of the same backend needs a "
                f"name of its own, for example {{'kind': '{twice[0]}', 'name': '{twice[0]}_2'}}",
                value=twice[0],
            )

    @classmethod
    def of(cls, targets: Iterable[BackendTarget]) -> TargetSet:
        """The set of these targets, whatever their order.

        Raises
        ------
        TargetError
            When not exactly one of them is of a native backend.
        """
        if isinstance(targets, TargetSet):
            return targets
        members = tuple(targets)
        native = [target for target in members if is_native(target)]
        if len(native) != 1:
            raise TargetError(
                f"{len(native)} of the targets compile through TVM; give exactly one, for example "
                "'llvm'",
                value=[target.name for target in members],
            )
        return cls(native[0], tuple(target for target in members if not is_native(target)))

    def __iter__(self) -> Iterator[BackendTarget]:
        yield self.native
        yield from self.external

    def __len__(self) -> int:
        return 1 + len(self.external)

    @overload
    def __getitem__(self, index: int) -> BackendTarget: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[BackendTarget, ...]: ...

    def __getitem__(self, index: int | slice) -> BackendTarget | tuple[BackendTarget, ...]:
        return tuple(self)[index]

    @property
    def device(self) -> DeviceKind:
        """The kind of device that all of them are for."""
        return device_of(self.native.device)

    @property
    def names(self) -> tuple[str, ...]:
        """The targets' names, the native one's first."""
        return tuple(target.name for target in self)

    def codegen_options(self) -> dict[str, dict[str, Any]]:
        """What TVM's own ``RunCodegen`` is to be given for a module partitioned for these targets.

        Without it, each backend compiles all of its functions with its default attributes.
        """
        names = dict.fromkeys(target.backend for target in self.external)
        return {
            name: {"targets": [target for target in self.external if target.backend == name]}
            for name in names
        }

    def named(self, name: str) -> BackendTarget:
        """The target of that name, which is its backend's unless it was given one.

        Raises
        ------
        TargetError
            When there is none; lists those there are.
        """
        for target in self:
            if target.name == name:
                return target
        raise TargetError(f"'{name}' is none of these targets: {', '.join(self.names)}", value=name)


def is_native(target: BackendTarget) -> bool:
    """Whether a target's backend compiles through TVM itself.

    Examples
    --------
    >>> import tvm
    >>> cpu = tvm.target.Target("llvm")
    >>> [is_native(BackendTarget.of(name, cpu)) for name in ("tvm", "onednn")]
    [True, False]
    """
    return isinstance(target.implementation, NativeBackend)


def is_external_codegen_for(target: BackendTarget, plain: BackendTarget) -> bool:
    """Whether a target is for the same kind of device as a plain one and takes part of its work.

    Parameters
    ----------
    target : BackendTarget
        Of any backend.
    plain : BackendTarget
        Of a native one, which has what is left.

    Returns
    -------
    bool
        False of two native targets, and of two external ones.

    Examples
    --------
    >>> import tvm
    >>> cpu = tvm.target.Target("llvm")
    >>> plain, onednn = (BackendTarget.of(name, cpu) for name in ("tvm", "onednn"))
    >>> is_external_codegen_for(onednn, plain), is_external_codegen_for(plain, onednn)
    (True, False)
    """
    same = device_of(target.device) is device_of(plain.device)
    return same and is_native(plain) and not is_native(target)


def members_of(
    kind: type[Kind], targets: Iterable[BackendTarget]
) -> list[tuple[Kind, BackendTarget]]:
    """The targets whose backends are of a kind or have an ability, with those backends.

    Parameters
    ----------
    kind : type
        ``NativeBackend``, ``ExternalBackend`` or a protocol of
        :mod:`~collage.backends.contract.abilities`.
    targets : iterable of BackendTarget
        Their order is kept.

    Returns
    -------
    list of tuple[Kind, BackendTarget]
        In the order of the targets; others are left out.

    Examples
    --------
    >>> import tvm
    >>> from collage.backends.contract import BundlesLibraries
    >>> cpu = tvm.target.Target("llvm")
    >>> targets = [BackendTarget.of(name, cpu) for name in ("tvm", "onednn", "openblas")]
    >>> [backend.name for backend, _ in members_of(BundlesLibraries, targets)]
    ['onednn', 'openblas']
    """
    members = [(target.implementation, target) for target in targets]
    return [(backend, target) for backend, target in members if isinstance(backend, kind)]
