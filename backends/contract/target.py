"""A target of a search: a backend, its options and the device it compiles for."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import tvm

from collage.backends.contract.options import NoOptions

if TYPE_CHECKING:
    from collage.backends.contract.backend import Backend


@dataclass(frozen=True)
class BackendTarget:
    """A backend, its validated options, and the TVM target of the device it refines.

    Attributes
    ----------
    backend : str
        Name of a registered backend.
    device : tvm.target.Target
        The TVM target compiled for, for example ``llvm -mcpu=...``.
    options : object
        An instance of the backend's ``options_type`` (a frozen dataclass).

    Examples
    --------
    >>> target = BackendTarget.of("onednn", tvm.target.Target("llvm"), {"layout": "nhwc"})
    >>> target.option_dict(), target.implementation.name
    ({'layout': 'nhwc'}, 'onednn')
    >>> BackendTarget.of("onednn", target.device, {"colour": "red"})
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.TargetError: target 'onednn' has no attribute 'colour'; ...
    """

    backend: str
    device: tvm.target.Target
    options: Any = field(default_factory=NoOptions)

    @classmethod
    def of(
        cls, backend: str, device: tvm.target.Target, attributes: Mapping[str, Any] | None = None
    ) -> BackendTarget:
        """The target of a registered backend, with options from a user's attributes.

        Parameters
        ----------
        backend : str
            The backend's name.
        device : tvm.target.Target
            What it compiles for.
        attributes : mapping of str to object, optional
            Options that differ from the backend's own choice.

        Raises
        ------
        TargetError
            When there is no such backend, it has no such option, or a value is of the wrong type.
        """
        bare = cls(backend, device)
        return cls(backend, device, bare.implementation.parse_options(attributes or {}))

    @cached_property
    def implementation(self) -> Backend:
        """The registered backend of that name.

        Raises
        ------
        TargetError
            When there is none.
        """
        # The registry makes targets itself: it cannot be imported before them.
        from collage.backends.contract.registry import get_backend

        return get_backend(self.backend)

    def option_dict(self) -> dict[str, Any]:
        """The options as plain values, for logs and for ``RunCodegen``'s target options."""
        return dataclasses.asdict(self.options)

    def key(self) -> str:
        """Canonical one-line JSON of everything in this target; equal targets give equal text."""
        return self._key

    @cached_property
    def _key(self) -> str:
        device = {str(k): str(v) for k, v in self.device.export().items()}
        value = {"backend": self.backend, "options": self.option_dict(), "device": device}
        return json.dumps(value, sort_keys=True, default=str)

    def __hash__(self) -> int:
        return hash(self.key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BackendTarget) and self.key() == other.key()
