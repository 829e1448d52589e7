"""What every external backend says of itself, as tests that it runs against itself."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from tvm import relax

from collage.backends.contract import (
    Availability,
    BackendTarget,
    ExternalBackend,
    Granularity,
    Match,
    PatternTriple,
    Precision,
    Verdict,
)
from collage.backends.contract.errors import TargetError
from collage.backends.contract.registry import (
    backend_names,
    get_backend,
    register_relax_patterns,
)
from collage.backends.devices import device_named
from collage.testing.backend_cases import (
    PatternCase,
    Refusal,
    composite_names,
    partition,
    verdicts,
)
from collage.testing.fixtures.backend_fixtures import BackendFixtures


class BackendStatements(BackendFixtures):
    """The part of the suites in which nothing is compiled: options, patterns, verdicts."""

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
        roofline = backend.roofline(target.device)
        shares = (roofline.matmul, roofline.convolution, roofline.attention, roofline.memory)
        assert all(0 < share <= 1 for share in shares)
        # What is entered and called takes microseconds, if anything.
        costs = (roofline.partition_sec, roofline.operator_sec or 0.0)
        assert all(0 <= sec < 1e-3 for sec in costs)

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

    def test_its_target_is_the_current_one(
        self,
        backend: ExternalBackend,
        target: BackendTarget,
        cases: list[PatternCase],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        asked: list[BackendTarget | None] = []
        patterns = type(backend).patterns

        def listening(target: BackendTarget) -> list[PatternTriple]:
            asked.append(BackendTarget.current())
            return [replaced(triple) for triple in patterns(backend, target)]

        def replaced(triple: PatternTriple) -> PatternTriple:
            def predicate(match: Match) -> Verdict:
                asked.append(BackendTarget.current())
                return triple.predicate(match)

            return dataclasses.replace(triple, predicate=predicate)

        named = dataclasses.replace(target, alias="another")
        with monkeypatch.context() as patch:
            patch.setattr(backend, "patterns", listening)
            partition(backend, named, cases)
        register_relax_patterns(backend, target)
        assert len(asked) > len(cases)
        assert set(asked) == {named}

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
