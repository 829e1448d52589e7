"""Explanations compare like with like, by hand-made costs and against brute force."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.report import Alternative, NodeInfo, PartitionInfo, RejectionInfo, Report
from collage.report import cover as cover_module
from collage.report.cover import CoverFinder, Piece, mask_of, nodes_of
from collage.report.explain import Explainer, explain
from tests.collage_tests.report.report_data import resnet_report


def _chain_report(
    partitions: list[PartitionInfo],
    alternatives: list[Alternative],
    rejections: tuple[RejectionInfo, ...] = (),
) -> Report:
    count = 1 + max(n for p in partitions for n in p.nodes)
    nodes = [
        NodeInfo(i, f"lv{i}", "nn.relu", "1x8", "float32", [i - 1] if i else [])
        for i in range(count)
    ]
    return Report(
        "m", "2026-01-01", {}, {}, [], nodes, partitions, alternatives, list(rejections)
    )  # fmt: skip


def _partition(number: int, backend: str, nodes: list[int], cost: float) -> PartitionInfo:
    return PartitionInfo(number, backend, nodes, [], "rule", cost, 0.0, f"w{number}")


def _measured(backend: str, nodes: list[int], cost: float, spread: float = 0.0) -> Alternative:
    return Alternative(backend, nodes, [], "rule", "valid", cost, spread)


def test_runner_up_covers_the_same_operators_with_smaller_candidates() -> None:
    report = _chain_report(
        [_partition(0, "lib", [0, 1, 2], 10.0)],
        [
            _measured("lib", [0, 1, 2], 10.0),
            _measured("tvm", [0], 4.0),
            _measured("tvm", [1, 2], 8.0),
            _measured("tvm", [1], 5.0),
            _measured("tvm", [2], 5.0),
        ],
    )
    for e in explain(report):
        assert e.runner_up is not None
        assert e.runner_up.backend == "tvm"
        assert e.runner_up.region_size == 3
    first, second, _ = explain(report)
    assert first.runner_up is not None
    assert first.runner_up.median_sec == 12.0
    assert first.runner_up.verdict() == "20.0% slower"
    assert second.runner_up is not None
    assert second.runner_up.median_sec == 12.0


def test_bigger_rival_is_compared_over_every_partition_that_it_touches() -> None:
    report = _chain_report(
        [_partition(0, "lib", [0, 1], 3.0), _partition(1, "lib", [2, 3], 4.0)],
        [
            _measured("lib", [0, 1], 3.0),
            _measured("lib", [2, 3], 4.0),
            _measured("tvm", [1, 2], 1.0),
            _measured("tvm", [0], 5.0),
            _measured("tvm", [3], 8.0),
        ],
    )
    (way,) = {e.runner_up for e in explain(report) if e.node in (1, 2)}
    assert way is not None
    assert (way.region_size, way.median_sec, way.chosen_median_sec) == (4, 14.0, 7.0)
    assert way.verdict() == "2.0 times the cost"


def test_without_a_rest_only_the_bigger_region_is_known() -> None:
    report = _chain_report(
        [_partition(0, "lib", [0], 1.0), _partition(1, "lib", [1], 1.0)],
        [_measured("tvm", [0, 1], 0.5), _measured("lib", [0], 1.0)],
    )
    # Both nodes are covered exactly by the rival, so this one is comparable ...
    assert all(e.runner_up and e.runner_up.median_sec == 0.5 for e in explain(report))
    assert all("faster alone" in e.others[0].reason for e in explain(report))
    # ... but not when the rival leaves a part of a partition that nobody else measured.
    report = _chain_report([_partition(0, "lib", [0, 1], 1.0)], [_measured("tvm", [1], 0.5)])
    second = explain(report)[1]
    assert second.runner_up is None
    assert "measured over 1 operator (500 ms ± 0.0), but nothing" in second.others[0].reason


@pytest.mark.parametrize(
    ("alternatives", "rejections", "reason"),
    [
        ([], (), "no pattern matches"),
        ([], (RejectionInfo(0, "tvm", "tvm.x", "groups are 3"),), "tvm.x: groups are 3"),
        (
            [Alternative("tvm", [0], [], "r", "timed_out", None, 0.0, "no result in 10 s")],
            (),
            "timed out: no result in 10 s",
        ),
        (
            [Alternative("tvm", [0], [], "r", "unknown", None, 0.0)],
            (),
            "not measured: the search ended without needing it",
        ),
    ],
)
def test_reasons_when_nothing_was_measured(
    alternatives: list[Alternative], rejections: tuple[RejectionInfo, ...], reason: str
) -> None:
    base = [_measured("lib", [0], 1.0), _measured("tvm", [9], 1.0)]
    report = _chain_report([_partition(0, "lib", [0], 1.0)], base + alternatives, rejections)
    (explanation,) = explain(report)
    assert explanation.runner_up is None
    assert [other.reason for other in explanation.others] == [reason]


def test_differences_below_the_spread_are_called_noise() -> None:
    report = _chain_report(
        [PartitionInfo(0, "lib", [0], [], "r", 1.0, 0.04, "w")],
        [_measured("lib", [0], 1.0, 0.04), _measured("tvm", [0], 1.05, 0.04)],
    )
    assert "within the noise" in explain(report)[0].others[0].reason


def test_chosen_partition_without_a_cost_cannot_be_compared_with() -> None:
    partition = PartitionInfo(0, "lib", [0], [], "r", None, 0.0, "w")
    report = _chain_report([partition], [_measured("tvm", [0], 1.0)])
    (explanation,) = explain(report)
    assert explanation.runner_up is None
    assert "the chosen partition was not measured alone" in explanation.others[0].reason


def test_reason_for_not_measuring_is_passed_on() -> None:
    unknown = Alternative("tvm", [0], [], "r", "unknown", None, 0.0, "the time was up")
    report = _chain_report([_partition(0, "lib", [0], 1.0)], [unknown])
    assert explain(report)[0].others[0].reason == "the time was up"
    assert Explainer(report).verdict(unknown) == "the time was up"


def test_candidates_are_told_why_they_lost() -> None:
    report = _chain_report(
        [_partition(0, "lib", [0, 1], 2.0)],
        [
            _measured("lib", [0, 1], 2.0),
            _measured("lib", [0], 1.5),
            _measured("lib", [1], 1.5),
            Alternative("tvm", [0, 1], [], "r", "unknown", None, 0.0),
        ],
    )
    verdict = Explainer(report).verdict
    assert verdict(report.alternatives[1]) == "50.0% slower"
    assert verdict(report.alternatives[3]) == "not measured: the search ended without needing it"


def test_inline_bindings_cost_nothing_and_are_not_explained() -> None:
    inline = PartitionInfo(1, "tvm", [1], [], "host", None, 0.0, "", True)
    report = _chain_report(
        [_partition(0, "lib", [0], 1.0), inline, _partition(2, "lib", [2], 1.0)],
        [_measured("tvm", [0, 1, 2], 3.0)],
    )
    explanations = explain(report)
    assert [e.node for e in explanations] == [0, 2]
    assert all(e.runner_up and e.runner_up.slower_by == 0.5 for e in explanations)


def test_every_operator_of_a_whole_network_is_explained() -> None:
    report = resnet_report()
    explanations = explain(report)
    outside = sorted(n for p in report.partitions if not p.inline for n in p.nodes)
    assert [e.node for e in explanations] == outside
    assert sum(e.runner_up is not None for e in explanations) > 100


_SIZE = 7
_pieces = st.lists(
    st.builds(
        Piece,
        nodes=st.integers(1, 2**_SIZE - 1),
        backend=st.just("b"),
        median_sec=st.integers(1, 50).map(float),
        spread_sec=st.just(1.0),
    ),
    max_size=14,
)


def _brute_force(rest: int, usable: list[Piece]) -> float:
    if not rest:
        return 0.0
    return min(
        (
            p.median_sec + _brute_force(rest & ~p.nodes, usable[i + 1 :])
            for i, p in enumerate(usable)
            if not p.nodes & ~rest
        ),
        default=math.inf,
    )


@settings(max_examples=200, deadline=None)
@given(_pieces, st.integers(1, 2**_SIZE - 1))
def test_cheapest_cover_agrees_with_trying_everything(pieces: list[Piece], region: int) -> None:
    cover = CoverFinder(pieces).cheapest(region)
    expected = _brute_force(region, pieces)
    if cover is None:
        assert math.isinf(expected)
        return
    assert cover.median_sec == expected
    assert cover.spread_sec == pytest.approx(math.sqrt(len(cover.pieces)))
    union = 0
    for piece in cover.pieces:
        assert not union & piece.nodes
        union |= piece.nodes
    assert union == region


@settings(max_examples=200, deadline=None)
@given(_pieces, st.integers(1, 2**_SIZE - 1), st.sampled_from([0, 2, 12]))
def test_cheapest_cover_with_a_piece_agrees_with_trying_everything(
    pieces: list[Piece], region: int, small_rest: int
) -> None:
    finder = CoverFinder(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cover_module, "SMALL_REST", small_rest)
        for piece in pieces:
            if piece.nodes & ~region:
                continue
            cover = finder.cheapest_with(piece, region)
            expected = piece.median_sec + _brute_force(region & ~piece.nodes, pieces)
            assert (math.inf if cover is None else cover.median_sec) == expected
            if cover is not None:
                assert cover.pieces[0] is piece
                assert sum(p.nodes for p in cover.pieces) == region


def test_too_many_states_count_as_unknown() -> None:
    pieces = [Piece(1 << i | 1 << j, "b", 1.0, 0.0) for i in range(24) for j in range(i)]
    finder = CoverFinder(pieces, max_states=100)
    assert finder.cheapest((1 << 24) - 1) is None


def test_long_chains_need_no_recursion() -> None:
    pieces = [Piece(1 << i, "b", 1.0, 0.0) for i in range(3000)]
    cover = CoverFinder(pieces).cheapest((1 << 3000) - 1)
    assert cover is not None
    assert cover.median_sec == 3000


@given(st.sets(st.integers(0, 300)))
def test_masks(indices: set[int]) -> None:
    assert nodes_of(mask_of(indices)) == sorted(indices)
