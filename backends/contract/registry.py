"""The one registry of backends: built-in ones, entry points, and those registered at run time.

Registering also tells Relax: the patterns go into its pattern registry and the code generator
becomes ``relax.ext.<name>``, so ``FuseOpsByPattern``, ``MergeCompositeFunctions`` and
``RunCodegen`` work with a registered backend unchanged.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

import tvm
import tvm_ffi
from tvm.relax.backend import _ffi_api as _relax_registry
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix, register_patterns
from tvm.relax.backend.utils import has_leaking_intermediate_variables

from collage.backends.contract.backend import Backend, ExternalBackend
from collage.backends.contract.errors import TargetError
from collage.backends.contract.patterns import Match, PatternTriple
from collage.backends.contract.relax_codegen import run_codegen
from collage.backends.contract.target import BackendTarget
from collage.backends.devices import device_named

ENTRY_POINT_GROUP = "collage.backends"
BUILTIN = (
    *("tvm", "onednn", "openblas", "openvino", "onnxruntime"),
    *("cutlass", "cublas", "cudnn", "tensorrt"),
)

_LOADING = threading.RLock()
_backends: dict[str, Backend] = {}


def register_backend(backend: Backend) -> None:
    """Add a backend under its name, beside the built-in ones and those of entry points.

    Raises
    ------
    TargetError
        When the name is taken, is one that TVM uses for a device target, or is no identifier.

    Examples
    --------
    A name stands for one backend:

    >>> from collage.backends.tvm import TVMBackend
    >>> register_backend(TVMBackend())
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.TargetError: a backend named 'tvm' is already registered
    """
    _load_builtin_and_entry_points()
    _register(backend)


def _register(backend: Backend) -> None:
    name = backend.name
    if name in _backends:
        raise TargetError(f"a backend named '{name}' is already registered", value=name)
    if not name.isidentifier():
        raise TargetError(f"'{name}' cannot name a backend: it is no identifier", value=name)
    if name in tvm.target.Target.list_kinds():
        raise TargetError(f"'{name}' is the name of a TVM target kind", value=name)
    _backends[name] = backend
    if isinstance(backend, ExternalBackend):
        register_codegen(backend)
        device = device_named(backend.device).any_target()
        register_relax_patterns(backend, BackendTarget(name, device, backend.parse_options({})))


def register_codegen(backend: ExternalBackend) -> None:
    """Tell Relax who compiles the functions of a backend."""
    codegen = functools.partial(run_codegen, backend)
    tvm_ffi.register_global_func(f"relax.ext.{backend.name}", codegen, override=True)


def get_backend(name: str) -> Backend:
    """The backend of that name.

    Raises
    ------
    TargetError
        When there is none; lists those there are.

    Examples
    --------
    >>> get_backend("onednn").name
    'onednn'
    >>> get_backend("onednnn")
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.TargetError: there is no backend 'onednnn'; known backends: ...
    """
    _load_builtin_and_entry_points()
    if name not in _backends:
        known = ", ".join(sorted(_backends))
        raise TargetError(f"there is no backend '{name}'; known backends: {known}", value=name)
    return _backends[name]


def backend_names() -> list[str]:
    """Names of all backends, built-in first, then in order of registration.

    Examples
    --------
    >>> backend_names()[:3]
    ['tvm', 'onednn', 'openblas']
    """
    _load_builtin_and_entry_points()
    return list(_backends)


def register_relax_patterns(backend: Backend, target: BackendTarget) -> list[str]:
    """Put a backend's patterns for ``target`` into Relax's registry, in place of earlier ones.

    Registering a backend does this with its default options.

    Parameters
    ----------
    backend : Backend
        Whose earlier patterns are removed.
    target : BackendTarget
        With the options that the patterns are for.

    Returns
    -------
    list of str
        The patterns' names, by falling priority: what ``FuseOpsByPattern`` takes.
    """
    earlier = [pattern.name for pattern in get_patterns_with_prefix(f"{backend.name}.")]
    _relax_registry.RemovePatterns(earlier)
    with target.scope:
        triples = list(backend.patterns(target))
    register_patterns([_relax_pattern(triple, target) for triple in triples])
    return [triple.name for triple in reversed(triples)]


def _relax_pattern(
    triple: PatternTriple, target: BackendTarget
) -> tuple[str, Any, Mapping[str, Any], Callable[..., bool]]:
    def check(context: Any) -> bool:
        # FuseOpsByPattern would return an inner value to its other users as well, which can close a
        # cycle: a convolution fused with an addition that depends on the convolution twice.
        if has_leaking_intermediate_variables(context):
            return False
        with target.scope:
            return bool(triple.predicate(Match(context.matched_expr, context.annotated_expr)))

    return (triple.name, triple.pattern, triple.annotations, check)


def load_builtin_backends() -> None:
    """Register what is built in, and nothing of others' yet: a second's work for who has the time.

    Everything here loads backends when they are first asked for.
    """
    with _LOADING:
        for name in BUILTIN:
            if name not in _backends:
                _register(importlib.import_module(f"collage.backends.{name}.backend").backend())


def _load_builtin_and_entry_points() -> None:
    # The first threads may come together, and a cache alone would let each of them begin.
    with _LOADING:
        _load_once()


@functools.cache
def _load_once() -> None:
    load_builtin_backends()
    for entry in metadata.entry_points(group=ENTRY_POINT_GROUP):
        where = f"entry point '{entry.name} = {entry.value}'"
        try:
            backend = entry.load()()
        except Exception as err:
            raise TargetError(f"{where} cannot be loaded: {err!r}", value=entry.value) from err
        if not isinstance(backend, Backend) or backend.name != entry.name:
            raise TargetError(f"{where} gives no backend of that name", value=entry.value)
        if _backends.get(entry.name) is None:
            _register(backend)
        elif type(_backends[entry.name]) is not type(backend):
            raise TargetError(
                f"{where}: a backend of that name is already registered", value=entry.value
            )
