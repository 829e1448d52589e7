"""The targets that one module is compiled for: one that compiles through TVM, and the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

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
                    f"target '{target.backend}' is for '{target.device.kind.name}', the others are "
                    f"for '{self.device.target_kind}'; targets of several kinds of devices "
                    "cannot be used together",
                    value=target.key(),
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
                value=[target.backend for target in members],
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
        """The backends' names, the native one's first."""
        return tuple(target.backend for target in self)

    def named(self, backend: str) -> BackendTarget:
        """The target of a backend.

        Raises
        ------
        TargetError
            When none of the targets is of that backend; lists those there are.
        """
        for target in self:
            if target.backend == backend:
                return target
        raise TargetError(
            f"'{backend}' is none of these targets: {', '.join(self.names)}", value=backend
        )


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
