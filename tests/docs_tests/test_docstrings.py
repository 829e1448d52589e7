"""The examples in the docstrings of everything public are run; nothing public is without one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import collage
from collage.backends.contract.registry import backend_names, get_backend

NEED_TORCH = ("collage.importers.torch.operators",)
"""Packages whose public names cannot be had without PyTorch."""


def _has_torch() -> bool:
    """Whether PyTorch can be imported; that it can be found does not say so."""
    try:
        importlib.import_module("torch")
    except ImportError:
        return False
    return True


def packages() -> Iterator[ModuleType]:
    """Every package that says what is public in it, and modules that are themselves public."""
    yield collage
    # Imported again on an error, which the walk itself would pass over in silence.
    for found in pkgutil.walk_packages(collage.__path__, "collage.", importlib.import_module):
        if found.ispkg:
            package = importlib.import_module(found.name)
            if hasattr(package, "__all__"):
                yield package


def public() -> Iterator[Any]:
    """Each documented object of these packages, by the first of its public names."""
    seen: set[int] = set()
    queue = list(packages())
    for package in queue:
        if package.__name__ in NEED_TORCH and not _has_torch():
            continue
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.ismodule(value) and hasattr(value, "__all__"):
                queue.append(value)
            # Constants and aliases of types have a line below them, exceptions their reason.
            elif inspect.isfunction(value) or (
                inspect.isclass(value) and not issubclass(value, BaseException)
            ):
                full = f"{package.__name__}.{name}"
                if id(value) not in seen:
                    yield pytest.param(full, value, id=full)
                seen.add(id(value))


def missing_library(name: str, source: str) -> str:
    """Why an example cannot be run here, for want of PyTorch or a backend's library; or empty."""
    if "import torch" in source and not _has_torch():
        return "it needs PyTorch"
    parts = name.split(".")
    if parts[1] != "backends" or parts[2] not in backend_names():
        return ""
    found = get_backend(parts[2]).probe()
    return "" if found.usable else found.reason


@pytest.mark.parametrize(("name", "value"), list(public()))
def test_has_examples_that_hold(
    name: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home = vars(sys.modules[value.__module__])
    tests = [t for t in doctest.DocTestFinder().find(value, name, globs=home) if t.examples]
    assert any(test.name == name for test in tests), f"{name} has no example"
    source = "".join(example.source for test in tests for example in test.examples)
    if reason := missing_library(name, source):
        pytest.skip(reason)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    for test in tests:
        runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)
