"""Caches of keys and values that transformers' models give back beside their results.

They are objects that ``torch.export`` does not know. Registering how they are taken apart, as
transformers' own exporters do, is no way out: what puts one together again is traced with the
model whenever PyTorch takes a program apart. So a model gives plain dicts while it is exported.
"""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

from collage.importers.torch.exporting.forward import replaced_forward


@contextmanager
def plain_caches(module: Any) -> Iterator[None]:
    """A module that gives caches as dicts of tensors, and afterwards as it was.

    A cache becomes ``key_cache`` and ``value_cache``, each a list with one tensor a layer; that of
    an encoder and a decoder ``self_attention_cache`` and ``cross_attention_cache``, of two such.
    What has layers of other kinds stays what it is.

    Parameters
    ----------
    module : torch.nn.Module
        Of any kind; those that give no such cache are left alone.

    Examples
    --------
    >>> import torch
    >>> with plain_caches(torch.nn.ReLU()) as nothing:
    ...     pass
    """
    if not _may_give_cache(module):
        yield
        return
    forward = module.forward
    with replaced_forward(module, lambda *args, **kwargs: _plain(forward(*args, **kwargs))):
        yield


@contextmanager
def plain_results(module: Any) -> Iterator[None]:
    """A module that gives dicts in place of data classes, and afterwards as it was.

    Parameters
    ----------
    module : torch.nn.Module
        Of which PyTorch was not told how its results are taken apart.

    Yields
    ------
    None
        Meanwhile fields that are None are missing.
    """
    forward = module.forward
    with replaced_forward(module, lambda *args, **kwargs: _plain(forward(*args, **kwargs), True)):
        yield


def _may_give_cache(module: Any) -> bool:
    """Whether it is one of transformers', or has one: with prompts that were learned there is a
    cache whatever the configuration says."""
    if "transformers.cache_utils" not in sys.modules:
        return False
    return any(hasattr(part, "config") for part in module.modules())


def _plain(value: Any, fields: bool = False) -> Any:
    """What a model gives without caches; and without data classes, where these are fields, too."""
    caches = sys.modules.get("transformers.cache_utils")
    if caches is not None and isinstance(value, caches.EncoderDecoderCache):
        return {name: _plain(getattr(value, name), fields) for name in _BOTH}
    if caches is not None and isinstance(value, caches.Cache):
        pairs = [_tensors(layer) for layer in value.layers]
        if all(pair is not None for pair in pairs):
            keys, values = zip(*filter(None, pairs), strict=True)
            return {"key_cache": list(keys), "value_cache": list(values)}
    if type(value) in (tuple, list):
        return type(value)(_plain(each, fields) for each in value)
    if fields and is_dataclass(value) and not isinstance(value, dict | type):
        named = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {key: _plain(each, fields) for key, each in named.items() if each is not None}
    if not isinstance(value, dict):
        return value
    found = {key: _plain(each, fields) for key, each in value.items()}
    # transformers' results are dicts, too, whose classes take fields by their names.
    return found if type(value) is dict else type(value)(**found)


def _tensors(layer: Any) -> tuple[Any, Any] | None:
    """Keys and values of a layer that keeps nothing else."""
    import torch

    kept = {
        key: value
        for key, value in vars(layer).items()
        if isinstance(value, torch.Tensor) and not key.startswith("_")
    }
    return (kept["keys"], kept["values"]) if set(kept) == {"keys", "values"} else None


_BOTH = ("self_attention_cache", "cross_attention_cache")


def gives_cache(module: Any) -> bool:
    """Whether a module is configured to give a cache back beside its results.

    Examples
    --------
    >>> import torch
    >>> gives_cache(torch.nn.ReLU())
    False
    """
    return any(True for _ in _configurations(module))


@contextmanager
def without_cache(module: Any) -> Iterator[None]:
    """A module that gives no cache back, and afterwards as it was.

    Warns
    -----
    UserWarning
        When what is done within comes to its end: results lack what the module gives.

    Examples
    --------
    >>> import torch
    >>> with without_cache(torch.nn.ReLU()):
    ...     pass
    """
    found = list(_configurations(module))
    for configuration in found:
        configuration.use_cache = False
    try:
        yield
    finally:
        for configuration in found:
            configuration.use_cache = True
    if found:
        name = type(module).__name__
        warnings.warn(
            f"the cache that '{name}' gives back cannot be exported; the model is compiled with "
            "use_cache=False and gives none",
            stacklevel=2,
        )


def _configurations(module: Any) -> Iterator[Any]:
    """Those of a module and its parts that say so, each once."""
    seen: set[int] = set()
    for part in module.modules():
        configuration = getattr(part, "config", None)
        if id(configuration) not in seen and getattr(configuration, "use_cache", None) is True:
            seen.add(id(configuration))
            yield configuration
