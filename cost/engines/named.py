"""Engines by name: what a user writes for ``workers`` becomes an engine, here alone.

A name is a scheme, with an address and options where the engine takes any: ``local``,
``ray://head:10001``, ``rpc://tracker:9190?key=h100``. An engine of somebody else's is the entry
point of its scheme in the group ``collage.engines``: a callable that makes an engine of a
:class:`WorkersUrl`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import TypeAlias
from urllib.parse import parse_qsl, urlsplit

from collage.backends.contract.errors import CollageError, WorkersError
from collage.backends.contract.requirements import install_extra
from collage.cost.measure.engine import Engine

ENTRY_POINT_GROUP = "collage.engines"
LOCAL = "local"

_BUILTIN = {
    LOCAL: "local:LocalEngine.from_url",
    "ray": "ray:RayEngine.from_url",
    "rpc": "rpc:RpcEngine.from_url",
}

WorkersLike: TypeAlias = str | Engine | Executor
"""What ``workers`` may be: a name, an engine, or an executor, which builds."""


@dataclass(frozen=True)
class WorkersUrl:
    """An engine's name taken apart.

    Attributes
    ----------
    text : str
        As the user wrote it.
    scheme : str
        Of the engine.
    host : str
        Empty where none is given.
    port : int or None
        None where none is given.
    options : mapping of str to str
        What stands behind the question mark.

    Examples
    --------
    >>> url = WorkersUrl.parse("rpc://tracker:9190?key=h100")
    >>> url.scheme, url.address(), url.only("key", "timeout")
    ('rpc', ('tracker', 9190), {'key': 'h100'})
    >>> WorkersUrl.parse("ray").host
    ''
    """

    text: str
    scheme: str
    host: str = ""
    port: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> WorkersUrl:
        """Take a name apart.

        Parameters
        ----------
        text : str
            ``scheme`` or ``scheme://host:port?option=value&…``.

        Raises
        ------
        WorkersError
            When it is neither.
        """
        scheme, colon, rest = text.partition("://")
        if not colon:
            return cls(text, text)
        try:
            parts = urlsplit(f"http://{rest}")
            port = parts.port
            pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError as err:
            raise _malformed(scheme, str(err)) from err
        if "@" in parts.netloc:
            # Nor is it repeated: it may be a password.
            raise _malformed(scheme, "a user or a password has no place in it")
        if parts.path.strip("/") or parts.fragment:
            raise _malformed(scheme, "neither a path nor a fragment means anything in it")
        options = dict(pairs)
        if len(options) < len(pairs):
            raise _malformed(scheme, "an option is given twice")
        return cls(text, scheme, parts.hostname or "", port, options)

    def address(self, default_port: int | None = None) -> tuple[str, int]:
        """Host and port.

        Parameters
        ----------
        default_port : int, optional
            Where none is given; without it, one has to be.

        Raises
        ------
        WorkersError
            When one is missing.
        """
        port = default_port if self.port is None else self.port
        if not self.host or port is None:
            missing = "host" if not self.host else "port"
            example = f"{self.scheme}://host:{default_port or 'port'}"
            raise WorkersError(
                f"workers '{self.text}' name no {missing}: write {example}", value=self.text
            )
        return self.host, port

    def only(self, *known: str) -> Mapping[str, str]:
        """The options.

        Parameters
        ----------
        *known : str
            Those that there are.

        Raises
        ------
        WorkersError
            When another one is given.
        """
        for name in self.options:
            if name not in known:
                options = ", ".join(known) or "none"
                raise WorkersError(
                    f"workers '{self.text}' have no option '{name}'; known options: {options}",
                    value=name,
                )
        return self.options


def engine_of(workers: WorkersLike) -> Engine:
    """The engine that a user means; none of its workers is started or asked.

    Parameters
    ----------
    workers : str, Engine or concurrent.futures.Executor
        A name, an engine itself, or an executor that builds for this machine's devices.

    Raises
    ------
    WorkersError
        When nobody has that name, it is malformed, or what it needs is not installed.

    Examples
    --------
    >>> type(engine_of("local")).__name__
    'LocalEngine'
    >>> engine_of("slurm://head:6817")
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.WorkersError: there are no workers 'slurm'; known: local, ...
    """
    if isinstance(workers, Engine):
        return workers
    if isinstance(workers, Executor):
        engine: Engine = import_module("collage.cost.engines.executor").ExecutorEngine(workers)
        return engine
    if not isinstance(workers, str):
        raise WorkersError(
            f"workers are a name, an Engine or a concurrent.futures.Executor, not {workers!r}",
            value=workers,
        )
    url = WorkersUrl.parse(workers)
    known = _entry_points()
    if url.scheme not in known:
        raise WorkersError(
            f"there are no workers '{url.scheme}'; known: {', '.join(known)}, "
            "or scheme://host:port",
            value=url.scheme,
        )
    made = _maker(known[url.scheme])(url)
    if not isinstance(made, Engine):
        raise WorkersError(
            f"'{known[url.scheme].value}' gives no engine for '{url.scheme}' but {made!r}",
            value=url.scheme,
        )
    return made


def engine_names() -> list[str]:
    """The schemes of all engines, built-in ones first.

    Examples
    --------
    >>> engine_names()[:3]
    ['local', 'ray', 'rpc']
    """
    return list(_entry_points())


def extra_module(name: str, extra: str) -> ModuleType:
    """A library that one of this project's extras installs.

    Parameters
    ----------
    name : str
        Of the module.
    extra : str
        Of the extra.

    Returns
    -------
    ModuleType
        The imported module.

    Raises
    ------
    WorkersError
        When it is not installed; with the line that mends it.

    Examples
    --------
    >>> extra_module("no_such_library", "ray")
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.WorkersError: these workers need 'no_such_library', ...
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as err:
        if err.name is None or name.partition(".")[0] != err.name.partition(".")[0]:
            raise
        raise WorkersError(
            f"these workers need '{err.name}', which is not installed; {install_extra(extra)}",
            value=err.name,
        ) from err


def _entry_points() -> dict[str, EntryPoint]:
    found = dict(_builtin())
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if found.setdefault(entry.name, entry).value != entry.value:
            raise WorkersError(
                f"entry point '{entry.name} = {entry.value}': "
                f"'{found[entry.name].value}' has that name already",
                value=entry.value,
            )
    return found


@functools.cache
def _builtin() -> Mapping[str, EntryPoint]:
    package = __name__.rpartition(".")[0]
    return {
        scheme: EntryPoint(scheme, f"{package}.{place}", ENTRY_POINT_GROUP)
        for scheme, place in _BUILTIN.items()
    }


def _maker(entry: EntryPoint) -> Callable[[WorkersUrl], object]:
    try:
        maker: Callable[[WorkersUrl], object] = entry.load()
    except CollageError:
        raise
    except Exception as err:
        raise WorkersError(
            f"entry point '{entry.name} = {entry.value}' cannot be loaded: {err!r}",
            value=entry.value,
        ) from err
    return maker


def _malformed(scheme: str, what: str) -> WorkersError:
    return WorkersError(
        f"the address of '{scheme}' workers is malformed: {what}; "
        f"write {scheme}://host:port?option=value",
        value=scheme,
    )
