"""What every external backend must keep, as tests that it runs against itself."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from collage.backends.contract import (
    Availability,
    BackendTarget,
    BuildContext,
    ExternalBackend,
    Granularity,
    Precision,
    Verdict,
)
from collage.backends.contract.errors import TargetError
from collage.backends.contract.registry import backend_names, get_backend
from collage.backends.devices import device_named
from collage.cost.reference import DEFAULT_RTOL, evaluate, largest_error
from collage.testing.backend_cases import (
    CompiledCases,
    PatternCase,
    Refusal,
    composite_names,
    constants_of,
    partition,
    verdicts,
)
from collage.testing.backend_fixtures import BackendFixtures

RUNNER = Path(__file__).with_name("run_library.py")
SIZE_THAT_SHOWS = 1 << 16
"""Bytes of a constant whose second copy stands out from a library's code and page padding."""


class BackendContract(BackendFixtures):
    """The suite of an external backend that runs on a CPU.

    Derive a test class and override the fixtures ``backend`` and ``cases``, and where there is
    something to give also ``refusals``, ``needing_context`` and ``parallel_case``.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.testing import graph
    >>> class TestMyBackend(BackendContract):
    ...     @pytest.fixture(scope="class")
    ...     @classmethod
    ...     def backend(cls):
    ...         return get_backend("onednn")
    ...
    ...     @pytest.fixture(scope="class")
    ...     @classmethod
    ...     def cases(cls):
    ...         silu = graph([(3, 7)], lambda emit, x: op.nn.silu(x))
    ...         return [PatternCase("onednn.silu", silu)]
    """

    # What the backend says about itself.

    def test_is_registered_under_its_name(self, backend: ExternalBackend) -> None:
        assert get_backend(backend.name) is backend
        assert backend.name in backend_names()
        assert backend.name.isidentifier()

    def test_declares_device_granularity_and_options(self, backend: ExternalBackend) -> None:
        assert device_named(backend.device).name == backend.device
        assert isinstance(backend.granularity, Granularity)
        assert dataclasses.is_dataclass(backend.options_type)
        with pytest.raises(dataclasses.FrozenInstanceError):
            backend.parse_options({}).anything = 1

    def test_probe_says_what_is_there(self, backend: ExternalBackend) -> None:
        found = backend.probe()
        assert isinstance(found, Availability)
        assert found.usable, found.reason
        assert all(version for version in found.versions.values())

    def test_unknown_attribute_lists_the_valid_ones(self, backend: ExternalBackend) -> None:
        with pytest.raises(TargetError, match="no_such_attribute") as caught:
            backend.parse_options({"no_such_attribute": 1})
        assert caught.value.value == "no_such_attribute"
        for field in dataclasses.fields(backend.options_type):
            assert field.name in str(caught.value)

    def test_ill_typed_attribute_is_refused(self, backend: ExternalBackend) -> None:
        for field in dataclasses.fields(backend.options_type):
            with pytest.raises(TargetError, match=field.name):
                backend.parse_options({field.name: object()})

    def test_default_options_survive_parsing(self, backend: ExternalBackend) -> None:
        defaults = backend.parse_options({})
        given = {k: v for k, v in dataclasses.asdict(defaults).items() if v is not None}
        assert backend.parse_options(given) == defaults

    def test_says_with_how_many_digits_it_computes(
        self, backend: ExternalBackend, target: BackendTarget
    ) -> None:
        defaults = backend.parse_options({})
        assert isinstance(backend.precision(defaults), Precision)
        # What costs fewer digits is an option, for the model's author to choose.
        assert backend.precision(defaults).form == "float32"
        shares = dataclasses.astuple(backend.roofline(target.device))
        assert all(0 < share <= 1 for share in shares)

    def test_its_sources_are_told_from_others(self, backend: ExternalBackend) -> None:
        assert backend.source_digest() == backend.source_digest()
        others = {get_backend(name) for name in backend_names()} - {backend}
        assert backend.source_digest() not in {other.source_digest() for other in others}
        assert all(path.is_file() for path in backend.sources)

    # Patterns and predicates.

    def test_pattern_names_are_unique_and_prefixed(
        self, backend: ExternalBackend, target: BackendTarget
    ) -> None:
        names = [triple.name for triple in backend.patterns(target)]
        assert names
        assert len(set(names)) == len(names)
        assert all(name.startswith(f"{backend.name}.") for name in names)

    def test_every_pattern_has_a_case(
        self,
        backend: ExternalBackend,
        target: BackendTarget,
        cases: list[PatternCase],
        needing_context: set[str],
    ) -> None:
        patterns = {triple.name for triple in backend.patterns(target)}
        assert needing_context <= patterns
        assert patterns - needing_context == {case.pattern for case in cases}

    def test_cases_are_accepted_whole(
        self, backend: ExternalBackend, target: BackendTarget, cases: list[PatternCase]
    ) -> None:
        mod = partition(backend, target, cases)
        found = Counter(composite_names(mod))
        wanted = Counter(case.pattern for case in cases)
        assert found == wanted, f"not made: {wanted - found}; made instead: {found - wanted}"
        for index, case in enumerate(cases):
            values = [b.value for block in mod[f"case{index}"].body.blocks for b in block.bindings]
            calls = [value for value in values if isinstance(value, relax.Call)]
            assert len(calls) == 1, f"{case.pattern} left operators behind: {values}"

    def test_predicates_answer_with_reasons(
        self, backend: ExternalBackend, target: BackendTarget, cases: list[PatternCase]
    ) -> None:
        for triple in backend.patterns(target):
            for case in cases:
                for verdict in verdicts(triple, case.mod["main"]):
                    assert isinstance(verdict, Verdict)
                    assert verdict or verdict.reason

    def test_refusals_name_the_reason(
        self, backend: ExternalBackend, target: BackendTarget, refusals: list[Refusal]
    ) -> None:
        triples = {triple.name: triple for triple in backend.patterns(target)}
        for refusal in refusals:
            answers = verdicts(triples[refusal.pattern], refusal.mod["main"])
            assert answers, f"{refusal.pattern} does not even match"
            assert not any(answers), f"{refusal.pattern} accepts what it must refuse"
            assert all(refusal.because in answer.reason for answer in answers), answers

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
