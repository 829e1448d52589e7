"""A target of a search: a backend, its options and the device it compiles for.

While a backend is asked for patterns and verdicts, and while it compiles, TVM's own current target
says all of this too: :attr:`BackendTarget.scope` is the device with the rest as its features.
"""

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


_FEATURE = "feature."
_SELF = "feature.collage"
"""TVM takes attributes of any name behind this prefix, on targets of every kind."""


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
    alias : str
        Its name where one backend takes part with several options; empty for the backend's own.

    Examples
    --------
    >>> target = BackendTarget.of("onednn", tvm.target.Target("llvm"), {"layout": "nhwc"}, "last")
    >>> target.name, target.option_dict(), target.implementation.name
    ('last', {'layout': 'nhwc', 'precision': 'float32', 'winograd': True}, 'onednn')
    >>> with target.scope:
    ...     tvm.target.Target.current().features.layout, BackendTarget.current() == target
    ('nhwc', True)
    >>> BackendTarget.of("onednn", target.device, {"colour": "red"})
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.TargetError: target 'onednn' has no attribute 'colour'; ...
    """

    backend: str
    device: tvm.target.Target
    options: Any = field(default_factory=NoOptions)
    alias: str = ""

    @classmethod
    def of(
        cls,
        backend: str,
        device: tvm.target.Target,
        attributes: Mapping[str, Any] | None = None,
        alias: str = "",
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
        alias : str
            The target's name, if that is not to be the backend's.

        Returns
        -------
        BackendTarget
            Its options are checked, and defaults where the user says nothing.

        Raises
        ------
        TargetError
            When there is no such backend, it has no such option, or a value is of the wrong type.
        """
        bare = cls(backend, device)
        options = bare.implementation.parse_options(attributes or {})
        return cls(backend, device, options, "" if alias == backend else alias)

    @classmethod
    def current(cls) -> BackendTarget | None:
        """The target whose :attr:`scope` is TVM's current target; None where there is none."""
        scope = tvm.target.Target.current(allow_none=True)
        return None if scope is None or _SELF not in scope.attrs else cls.of_scope(scope)

    @classmethod
    def of_scope(cls, scope: tvm.target.Target) -> BackendTarget:
        """The target that a :attr:`scope` is of.

        Parameters
        ----------
        scope : tvm.target.Target
            Of some target, possibly of another process.
        """
        said = json.loads(str(scope.attrs[_SELF]))
        added = {_SELF, *(_FEATURE + option for option in said["options"])}
        device = {key: value for key, value in scope.export().items() if str(key) not in added}
        target = tvm.target.Target(device)
        return cls.of(said["backend"], target, said["options"], said["alias"])

    @property
    def name(self) -> str:
        """What logs, reports and partitions call it: its alias, or the backend's name."""
        return self.alias or self.backend

    @cached_property
    def scope(self) -> tvm.target.Target:
        """The device with this target's options as its features.

        It is TVM's current target wherever the backend is asked for patterns or verdicts and while
        it compiles. ``Target.current().features.layout`` is then the option ``layout``, and
        :meth:`current` all of this target.
        """
        options = self.option_dict()
        said = {"backend": self.backend, "alias": self.alias, "options": options}
        features = {_FEATURE + k: value for k, value in options.items() if value is not None}
        features[_SELF] = json.dumps(said, sort_keys=True)
        return tvm.target.Target({**self.device.export(), **features})

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
        if self.alias:
            value["name"] = self.alias
        return json.dumps(value, sort_keys=True, default=str)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BackendTarget) and self._key == other._key
