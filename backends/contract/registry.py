"""The one registry of backends: built-in ones, entry points, and those registered at run time.

Registering also tells Relax: the patterns go into its pattern registry and the code generator
becomes ``relax.ext.<name>``, so ``FuseOpsByPattern``, ``MergeCompositeFunctions`` and
``RunCodegen`` work with a registered backend unchanged.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.backend import _ffi_api as _relax_registry
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix, register_patterns
from tvm.relax.backend.utils import has_leaking_intermediate_variables

from collage.backends.contract.base import (
    NUM_THREADS_ALL,
    Backend,
    BackendTarget,
    BuildContext,
    ExternalBackend,
    Match,
    PatternTriple,
)
from collage.backends.contract.errors import CollageError, TargetError
from collage.backends.devices import device_named

ENTRY_POINT_GROUP = "collage.backends"
BUILTIN = ("tvm", "onednn", "openblas", "cutlass", "cublas", "cudnn", "tensorrt")

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
        _register_codegen(backend)
        device = device_named(backend.device).any_target()
        register_relax_patterns(backend, BackendTarget(name, device, backend.parse_options({})))


def get_backend(name: str) -> Backend:
    """The backend of that name.

    Raises
    ------
    TargetError
        When there is none; lists those there are.
    """
    _load_builtin_and_entry_points()
    if name not in _backends:
        known = ", ".join(sorted(_backends))
        raise TargetError(f"there is no backend '{name}'; known backends: {known}", value=name)
    return _backends[name]


def backend_names() -> list[str]:
    """Names of all backends, built-in first, then in order of registration."""
    _load_builtin_and_entry_points()
    return list(_backends)


def register_relax_patterns(backend: Backend, target: BackendTarget) -> list[str]:
    """Put a backend's patterns for ``target`` into Relax's registry, in place of earlier ones.

    Registering a backend does this with its default options.

    Returns
    -------
    list of str
        The patterns' names, by falling priority: what ``FuseOpsByPattern`` takes.
    """
    earlier = [pattern.name for pattern in get_patterns_with_prefix(f"{backend.name}.")]
    _relax_registry.RemovePatterns(earlier)
    triples = list(backend.patterns(target))
    register_patterns([_relax_pattern(triple) for triple in triples])
    return [triple.name for triple in reversed(triples)]


def _relax_pattern(
    triple: PatternTriple,
) -> tuple[str, Any, Mapping[str, Any], Callable[..., bool]]:
    def check(context: Any) -> bool:
        # FuseOpsByPattern would return an inner value to its other users as well, which can close a
        # cycle: a convolution fused with an addition that depends on the convolution twice.
        if has_leaking_intermediate_variables(context):
            return False
        return bool(triple.predicate(Match(context.matched_expr, context.annotated_expr)))

    return (triple.name, triple.pattern, triple.annotations, check)


def _register_codegen(backend: ExternalBackend) -> None:
    def codegen(
        functions: Sequence[relax.Function], options: Mapping[str, Any], _names: Mapping[Any, str]
    ) -> list[tvm.runtime.Module]:
        target, context = decode_codegen_options(backend, dict(options))
        try:
            return backend.codegen(list(functions), target, context)
        except CollageError as err:
            # An error loses its type on its way through TVM: the caller finds it here instead.
            if "failures" in options:
                options["failures"].errors.append(err)
            raise

    tvm_ffi.register_global_func(f"relax.ext.{backend.name}", codegen, override=True)


@dataclass
class CodegenFailures:
    """Errors that code generators raised under ``RunCodegen``, with their types and values."""

    errors: list[CollageError] = field(default_factory=list)


def encode_codegen_options(
    target: BackendTarget, context: BuildContext, failures: CodegenFailures | None = None
) -> dict[str, Any]:
    """What ``RunCodegen``'s ``target_options`` carry to a backend."""
    return ({} if failures is None else {"failures": failures}) | {
        "attributes": target.option_dict(),
        "device": target.device,
        "cache_dir": str(context.cache_dir),
        "work_dir": str(context.work_dir),
        "num_threads": context.num_threads,
        "cxx": context.cxx,
        "tuning_log": "" if context.tuning_log is None else str(context.tuning_log),
        "replay": context.replay,
    }


def decode_codegen_options(
    backend: Backend, options: Mapping[str, Any]
) -> tuple[BackendTarget, BuildContext]:
    """The inverse of :func:`encode_codegen_options`; all of it may be absent (plain Relax BYOC)."""
    attributes = {str(k): _plain(v) for k, v in dict(options.get("attributes", {})).items()}
    device = options.get("device") or tvm.target.Target("llvm")
    home = Path.home() / ".cache" / "collage"
    log = str(options.get("tuning_log", ""))
    context = BuildContext(
        cache_dir=Path(str(options.get("cache_dir", home))),
        work_dir=Path(str(options.get("work_dir", home / "work"))),
        num_threads=int(options.get("num_threads", NUM_THREADS_ALL)),
        cxx=str(options.get("cxx", "g++")),
        tuning_log=Path(log) if log else None,
        replay=bool(options.get("replay", False)),
    )
    return BackendTarget(backend.name, device, backend.parse_options(attributes)), context


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, str) else value


@functools.cache
def _load_builtin_and_entry_points() -> None:
    for name in BUILTIN:
        if name not in _backends:
            _register(importlib.import_module(f"collage.backends.{name}.backend").backend())
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
