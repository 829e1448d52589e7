"""The examples in the docstrings of everything public are run; none of a user's is missing."""

from __future__ import annotations

import doctest
import importlib
import inspect
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PACKAGES = (
    "collage",
    "collage.transform",
    "collage.backends",
    "collage.backends.contract",
    "collage.backends.cublas",
    "collage.backends.cudnn",
    "collage.backends.cutlass",
    "collage.backends.cutlass.families",
    "collage.backends.cutlass.families.attention",
    "collage.backends.cutlass.families.conv2d",
    "collage.backends.cutlass.families.gemm",
    "collage.backends.cutlass.families.norm",
    "collage.backends.devices",
    "collage.backends.onednn",
    "collage.backends.onednn.operators",
    "collage.backends.openblas",
    "collage.backends.relax",
    "collage.backends.storage",
    "collage.backends.tensorrt",
    "collage.backends.tensorrt.converters",
    "collage.backends.toolchain",
    "collage.backends.tvm",
    "collage.backends.tvm.common",
    "collage.backends.tvm.cpu",
    "collage.backends.tvm.cpu.schedules",
    "collage.backends.tvm.cuda",
    "collage.backends.tvm.cuda.schedules",
    "collage.cost",
    "collage.cost.database",
    "collage.cost.device",
    "collage.cost.measure",
    "collage.cost.models",
    "collage.cost.processes",
    "collage.cost.reference",
    "collage.cost.workload",
    "collage.importers",
    "collage.normalize",
    "collage.passes",
    "collage.rewrite",
    "collage.search",
    "collage.search.rules",
)
"""Whose every public name has an example."""


def public() -> Iterator[Any]:
    """Each documented object of these packages, by its public name."""
    for package in map(importlib.import_module, PACKAGES):
        for name in package.__all__:
            value = getattr(package, name)
            # Constants and aliases of types have a line below them, exceptions their reason.
            if inspect.isfunction(value) or (
                inspect.isclass(value) and not issubclass(value, BaseException)
            ):
                full = f"{package.__name__}.{name}"
                yield pytest.param(full, value, id=full)


@pytest.mark.parametrize(("name", "value"), list(public()))
def test_has_examples_that_hold(
    name: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home = vars(sys.modules[value.__module__])
    tests = [t for t in doctest.DocTestFinder().find(value, name, globs=home) if t.examples]
    assert any(test.name == name for test in tests), f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    for test in tests:
        runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)
