"""What the suite of a backend is run on: to be overridden, or made from what was given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import tvm

from collage.backends.compile import compile_module
from collage.backends.contract import (
    BackendTarget,
    BuildContext,
    ExternalBackend,
)
from collage.backends.link import stage_libraries
from collage.testing.backend_cases import (
    CompiledCases,
    PatternCase,
    Refusal,
    partition,
)


class BackendFixtures:
    """The fixtures of :class:`~collage.testing.BackendContract`."""

    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls) -> ExternalBackend:
        """Override with the backend under test, registered.

        Raises
        ------
        NotImplementedError
            When it is not overridden.
        """
        raise NotImplementedError("override the fixture 'backend' with a registered backend")

    @pytest.fixture(scope="class")
    @classmethod
    def cases(cls) -> list[PatternCase]:
        """Override with one case per pattern.

        Raises
        ------
        NotImplementedError
            When it is not overridden.
        """
        raise NotImplementedError("override the fixture 'cases' with one case per pattern")

    @pytest.fixture(scope="class")
    @classmethod
    def refusals(cls) -> list[Refusal]:
        """Override with graphs that the predicates must refuse."""
        return []

    @pytest.fixture(scope="class")
    @classmethod
    def needing_context(cls) -> set[str]:
        """Override with patterns that never win in a graph of their own, so have no case."""
        return set()

    @pytest.fixture(scope="class")
    @classmethod
    def parallel_case(cls) -> PatternCase | None:
        """Override with a case large enough to use every thread."""
        return None

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, backend: ExternalBackend) -> BackendTarget:
        return BackendTarget(backend.name, tvm.target.Target("llvm"), backend.parse_options({}))

    @pytest.fixture(scope="class")
    @classmethod
    def context(cls, tmp_path_factory: pytest.TempPathFactory) -> BuildContext:
        folder = tmp_path_factory.mktemp("contract")
        return BuildContext(folder / "cache", folder / "work", num_threads=2)

    @pytest.fixture(scope="class")
    @classmethod
    def codegen_calls(cls, backend: ExternalBackend) -> list[int]:
        """Grows by the number of functions at every call of the backend's codegen."""
        return []

    @pytest.fixture(scope="class")
    @classmethod
    def compiled(
        cls,
        backend: ExternalBackend,
        target: BackendTarget,
        context: BuildContext,
        cases: list[PatternCase],
        codegen_calls: list[int],
    ) -> CompiledCases:
        """All cases in one library, compiled once for the whole suite.

        Parameters
        ----------
        backend, target, context, cases, codegen_calls
            Fixtures of this suite.
        """
        original = type(backend).codegen

        def counting(functions, *args):  # type: ignore[no-untyped-def]
            codegen_calls.append(len(functions))
            return original(backend, functions, *args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backend, "codegen", counting)
            library = cls.compile(backend, target, context, cases, "cases")
        return CompiledCases(library, cases)

    @staticmethod
    def compile(
        backend: ExternalBackend,
        target: BackendTarget,
        context: BuildContext,
        cases: Sequence[PatternCase],
        name: str,
    ) -> Path:
        """The shared library of some cases, with what it needs beside it.

        Parameters
        ----------
        backend : ExternalBackend
            Compiles them.
        target : BackendTarget
            Its target.
        context : BuildContext
            Where and how to build.
        cases : sequence of PatternCase
            Case ``i`` becomes the function ``case<i>``.
        name : str
            Of the library's folder.
        """
        output = context.work_dir.parent / name / "model.so"
        library = compile_module(partition(backend, target, cases), [target], output, context)
        stage_libraries(library, copy=False)
        return library.path
