"""What every external backend must keep, as tests that it runs against itself."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from collage.backends.contract import (
    BackendTarget,
    BuildContext,
    ExternalBackend,
)
from collage.cost.reference import DEFAULT_RTOL, evaluate, largest_error
from collage.testing.backend_cases import (
    CompiledCases,
    PatternCase,
    constants_of,
)
from collage.testing.backend_statements import BackendStatements

RUNNER = Path(__file__).with_name("run_library.py")
SIZE_THAT_SHOWS = 1 << 16
"""Bytes of a constant whose second copy stands out from a library's code and page padding."""


class BackendContract(BackendStatements):
    """The suite of an external backend that runs on a CPU.

    Derive a test class, name the backend and override the fixture ``cases``, and where there is
    something to give also ``refusals``, ``needing_context`` and ``parallel_case``.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.testing import graph
    >>> class TestMyBackend(BackendContract):
    ...     backend_name = "onednn"
    ...
    ...     @pytest.fixture(scope="class")
    ...     @classmethod
    ...     def cases(cls):
    ...         silu = graph([(3, 7)], lambda emit, x: op.nn.silu(x))
    ...         return [PatternCase("onednn.silu", silu)]
    """

    # Generated code.

    def test_codegen_is_called_once_with_every_function(
        self, compiled: CompiledCases, codegen_calls: list[int]
    ) -> None:
        assert codegen_calls == [len(compiled.cases)]

    def test_results_agree_with_the_reference(self, compiled: CompiledCases) -> None:
        rng = np.random.default_rng()
        wrong = []
        for index, case in enumerate(compiled.cases):
            inputs = case.inputs(rng)
            expected = evaluate(case.mod, inputs)
            try:
                actual = compiled.run(index, inputs)
            except (RuntimeError, ValueError, TypeError) as err:
                wrong.append(f"{case.pattern}: {err}")
                continue
            assert len(actual) == len(expected)
            for got, wanted in zip(actual, expected, strict=True):
                assert wanted.min() != wanted.max(), (
                    f"{case.pattern}: a constant output proves nothing"
                )
                error = largest_error(got, wanted)
                if error >= DEFAULT_RTOL:
                    wrong.append(f"{case.pattern}: error {error:.2e}")
        assert not wrong, "\n".join(wrong)

    def test_same_inputs_give_the_same_bits(self, compiled: CompiledCases) -> None:
        rng = np.random.default_rng()
        for index, case in enumerate(compiled.cases):
            inputs = case.inputs(rng)
            first, second = compiled.run(index, inputs), compiled.run(index, inputs)
            for a, b in zip(first, second, strict=True):
                assert a.tobytes() == b.tobytes(), case.pattern

    def test_two_threads_at_once(self, compiled: CompiledCases) -> None:
        rng = np.random.default_rng()
        work = [[case.inputs(rng) for case in compiled.cases] for _ in range(2)]
        expected = [[compiled.run(i, inputs) for i, inputs in enumerate(mine)] for mine in work]
        machines = [compiled.new_machine() for _ in work]
        errors: list[str] = []

        def repeat(worker: int) -> None:
            for _ in range(10):
                for i, inputs in enumerate(work[worker]):
                    outputs = compiled.run(i, inputs, machines[worker])
                    pairs = zip(outputs, expected[worker][i], strict=True)
                    worst = max(largest_error(got, wanted) for got, wanted in pairs)
                    if worst > 1e-5:
                        errors.append(f"{compiled.cases[i].pattern}: {worst}")

        threads = [threading.Thread(target=repeat, args=(worker,)) for worker in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        assert not any(thread.is_alive() for thread in threads), "concurrent calls hang"
        assert not errors

    def test_equal_constants_are_stored_once(
        self,
        backend: ExternalBackend,
        target: BackendTarget,
        context: BuildContext,
        cases: list[PatternCase],
        parallel_case: PatternCase | None,
    ) -> None:
        every = [*cases, *([parallel_case] if parallel_case else [])]
        case = max(every, key=lambda c: sum(a.nbytes for a in constants_of(c.mod)))
        arrays = constants_of(case.mod)
        if not arrays:
            pytest.skip("no case has a constant")
        once = self.compile(backend, target, context, [case], "once").read_bytes()
        twice = self.compile(backend, target, context, [case, case], "twice").read_bytes()
        largest = max(arrays, key=lambda array: array.nbytes)
        if largest.nbytes >= SIZE_THAT_SHOWS:
            grown = len(twice) - len(once)
            assert grown < largest.nbytes / 2, "the second use brought a second copy"
        for array in arrays:
            if array.nbytes >= 64:
                assert twice.count(array.tobytes()) <= 1

    @pytest.mark.parametrize("num_threads", [1, 2])
    def test_num_threads_is_honoured(
        self,
        num_threads: int,
        backend: ExternalBackend,
        target: BackendTarget,
        context: BuildContext,
        cases: list[PatternCase],
        parallel_case: PatternCase | None,
        tmp_path: Path,
    ) -> None:
        case = parallel_case or cases[0]
        threaded = dataclasses.replace(context, num_threads=num_threads)
        library = self.compile(backend, target, threaded, [case], f"threads{num_threads}")
        inputs = case.inputs(np.random.default_rng(0))
        np.savez(tmp_path / "inputs.npz", *inputs)
        command = [sys.executable, str(RUNNER), str(library), str(tmp_path / "inputs.npz")]
        done = subprocess.run(
            [*command, "case0", "0.3"], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        busy = json.loads(done.stdout)["busy_threads"]
        if parallel_case is not None:
            assert busy == num_threads
        else:
            assert 1 <= busy <= num_threads
