"""What partitions take inside a model, told from the calls that it makes."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from collage.cost.call_times import CallTime
from collage.end_to_end.inside import seconds_inside
from collage.search.candidates import Candidate
from collage.search.partitioning import Partitioning
from collage.targets import resolve_targets

NATIVE, LIBRARY = resolve_targets(["llvm", "onednn"])


def parts(kinds: str) -> Partitioning:
    """A partition for each letter: of the native compiler, or of the library."""
    targets = {"t": NATIVE, "l": LIBRARY}
    return Partitioning(
        tuple(Candidate(1 << place, targets[kind]) for place, kind in enumerate(kinds))
    )


def one(candidate: Candidate) -> float:
    return 1.0


def test_native_calls_are_told_apart_by_their_order() -> None:
    partitioning = parts("tltt")
    calls = [CallTime("a", 1.0), CallTime("onednn_0", 2.0), CallTime("b", 3.0), CallTime("b1", 4.0)]
    found = seconds_inside(partitioning, calls, one)
    assert [found[part] for part in partitioning.candidates] == [1.0, 2.0, 3.0, 4.0]


def test_more_calls_than_partitions_are_shared_out_by_what_these_take_alone() -> None:
    partitioning = parts("ttl")
    alone = dict(zip(partitioning.candidates, [3.0, 1.0, 7.0], strict=True))
    calls = [CallTime(name, 4.0) for name in ("a", "b", "c")] + [CallTime("onednn_0", 2.0)]
    found = seconds_inside(partitioning, calls, alone.__getitem__)
    assert [found[part] for part in partitioning.candidates] == [9.0, 3.0, 2.0]


def test_a_partition_that_became_a_view_takes_nothing_and_what_the_compiler_adds_is_nobodys() -> (
    None
):
    partitioning = parts("ltl")
    calls = [CallTime("fill", 9.0), CallTime("onednn_0", 1.0), CallTime("onednn_1", 2.0)]
    found = seconds_inside(partitioning, calls, one)
    assert [found[part] for part in partitioning.candidates] == [1.0, 0.0, 2.0]


def test_calls_of_other_libraries_say_nothing() -> None:
    calls = [CallTime("a", 1.0), CallTime("onednn_1", 2.0)]
    assert seconds_inside(parts("tl"), calls, one) == {}
    assert seconds_inside(parts("tl"), [], one) == {}


@given(st.text("tl", min_size=1, max_size=12), st.data())
def test_nothing_is_lost_or_made_up(kinds: str, data: st.DataObject) -> None:
    """Where every partition makes at least a call, what all of them take is what the calls took."""
    seconds = st.floats(1e-6, 1.0)
    calls, libraries = [], 0
    for place, kind in enumerate(kinds):
        if kind == "l":
            calls.append(CallTime(f"onednn_{libraries}", data.draw(seconds)))
            libraries += 1
        else:
            drawn = data.draw(st.lists(seconds, min_size=1, max_size=3))
            calls += [CallTime(f"kernel{place}", sec) for sec in drawn]
    found = seconds_inside(parts(kinds), calls, lambda part: 1.0 + part.nodes)
    assert set(found) == set(parts(kinds).candidates)
    assert math.isclose(sum(found.values()), sum(call.median_sec for call in calls))
