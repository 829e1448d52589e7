"""Compiled objects are named by all of our files in them: caches outlive changes to these."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import tvm

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.toolchain import compiling, native, openmp_pool
from collage.backends.toolchain.compiling import TEMPLATES, Compilation
from collage.cost.engines.rpc import guard

OURS, INSTALLED = TEMPLATES.parents[2], Path(sys.prefix).resolve()
SHARED = {
    "threads": native.num_threads_object,
    "thread pool": native.thread_pool_object,
    "denormals": native.denormals_object,
    "weights": native.weights_object,
    "OpenMP": openmp_pool.pool_library,
    "guard": guard.guard_library,
}


class _ByName:
    """Takes the place of :meth:`Compilation.of` and sees what each object is named by."""

    def __init__(self, original: Callable[..., Compilation]) -> None:
        self._original = original
        self.seen: list[tuple[set[Path], tuple[str, ...]]] = []

    def of(
        self,
        source: Path,
        depends: Iterable[Path],
        key: Iterable[str],
        command: Iterable[str],
        context: BuildContext,
    ) -> Compilation:
        named, line = {source, *depends}, tuple(command)
        self.seen.append(({path.resolve() for path in named}, line))
        return self._original(source, named - {source}, key, line, context)

    def require_all(self) -> None:
        """Every file below the project's folders that the preprocessor reads counts."""
        assert self.seen
        for named, command in self.seen:
            rule = compiling.run_tool([*(word for word in command if word != "-c"), "-MM"])
            read = [Path(word).resolve() for word in rule.replace("\\\n", " ").split()[1:]]
            # The environment may be a folder of the project's.
            ours = {path for path in read if path.is_relative_to(OURS)}
            ours = {path for path in ours if not path.is_relative_to(INSTALLED)}
            assert ours and ours <= named, ours - named


@pytest.fixture
def by_name(monkeypatch: pytest.MonkeyPatch) -> _ByName:
    made = _ByName(Compilation.of)
    monkeypatch.setattr(Compilation, "of", made.of)
    return made


@pytest.mark.parametrize("backend", ["onednn", "openblas", "openvino", "onnxruntime"])
def test_of_backends(backend: str, by_name: _ByName, context: BuildContext) -> None:
    target = BackendTarget.of(backend, tvm.target.Target("llvm"))
    if not (probe := target.implementation.probe()).usable:
        pytest.skip(str(probe))
    target.implementation.compilations(target, context)
    by_name.require_all()


@pytest.mark.parametrize("make", SHARED.values(), ids=SHARED)
def test_of_what_they_share(
    make: Callable[[BuildContext], object], by_name: _ByName, context: BuildContext
) -> None:
    make(context)
    by_name.require_all()
