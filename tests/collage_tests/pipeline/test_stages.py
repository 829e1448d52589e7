"""Each stage of an optimization alone: what it takes, what it gives, what it refuses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.contract import BackendTarget
from collage.backends.contract.errors import LogError, MeasurementError, TargetError
from collage.backends.devices import CPU
from collage.candidate_costs import WorkloadCosts
from collage.cost.base import Cost, CostModel, CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.device import policy_of
from collage.cost.models.measured import MeasuredCostModel
from collage.cost.progress import ProgressEvent
from collage.cost.workload.workload import Workload
from collage.end_to_end import Contender, EstimatedComparison, Evaluation
from collage.pipeline import (
    Covers,
    EstimatedCosting,
    Evaluated,
    Imported,
    MeasuredCosting,
    Session,
    choose_costing,
    evaluate_contenders,
    find_covers,
    import_model,
    open_session,
    refine_winner,
)
from collage.pipeline.limits.budget import Budget
from collage.pipeline.results.assemble import end_to_end_rows, installed_versions, search_stats
from collage.search.rules import Found, Rejection
from collage.tensor_info import TensorInfo

TARGETS = ["llvm", "openblas"]
CONFIG = MeasureConfig(repeat=2, min_repeat=1, min_repeat_sec=0.001, warmup_sec=0.001)


class Flat(CostModel):
    """Every workload costs the same, except on backends that are too dear or not known."""

    def __init__(self, **seconds: float | None) -> None:
        self.seconds = seconds

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        costs = []
        for target in targets:
            sec = self.seconds.get(target.backend, 1.0)
            if sec is None:
                costs.append(Cost(CostStatus.UNKNOWN, reason="no time"))
            else:
                costs.append(Cost(CostStatus.VALID, sec, samples_sec=(sec,)))
        return costs


@pytest.fixture
def module() -> tvm.IRModule:
    """relu(x @ w) as a matrix product and what follows"""
    weights = np.random.default_rng(0).standard_normal((8, 16)).astype("float32")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.matmul(x, relax.const(weights)))
            out = builder.emit_output(op.nn.relu(y))
        builder.emit_func_output(out)
    return builder.get()


@pytest.fixture
def session() -> Session:
    return open_session(TARGETS, num_threads=1)


@pytest.fixture
def imported(module: tvm.IRModule) -> Imported:
    return import_model(module, CPU)


def costs_of(imported: Imported, model: CostModel) -> WorkloadCosts:
    return WorkloadCosts(imported.mod, imported.graph, model)


def test_a_session_has_targets_threads_and_log(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"format"\n{}\nno JSON\n{"torn": 1\n', encoding="utf-8")
    events: list[ProgressEvent] = []
    session = open_session(TARGETS, log=log, num_threads=3, progress=events.append)
    assert session.targets.names == ("tvm", "openblas")
    assert session.context.num_threads == 3 and session.context.tuning_log == log
    assert session.context.work_dir.is_dir() and not session.replay
    # Locks are made beside what they are for, and nothing else may lie beside the own folder.
    assert session.context.work_dir.parent == session.folder.path
    assert events and all(e.stage == "log" and str(log) in e.message for e in events)
    assert open_session(TARGETS, log=log, replay=True).replay


def test_a_session_of_unknown_targets_is_refused() -> None:
    with pytest.raises(TargetError, match="unknown target 'openblass'"):
        open_session(["openblass"])


def test_an_imported_model_is_normalized_and_has_inputs(module: tvm.IRModule) -> None:
    events: list[ProgressEvent] = []
    imported = import_model(module, CPU, progress=events.append)
    assert imported.inputs == (TensorInfo((4, 8), "float32", "x"),)
    assert [info.shape for info in imported.outputs] == [(4, 16)]
    names = {imported.graph.op_name(index) for index in range(len(imported.graph))}
    assert names == {"matmul", "nn.relu"}
    (first,), (again,), (other,) = (imported.random_inputs(seed) for seed in (0, 0, 1))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert [(e.stage, e.done) for e in events] == [("import", 0), ("import", 1), ("import", 2)]


def test_what_costs_come_from_is_chosen_once(session: Session) -> None:
    assert isinstance(choose_costing(session, None, None), MeasuredCosting)
    estimated = choose_costing(session, Flat(), None)
    assert isinstance(estimated, EstimatedCosting)
    assert estimated.device()["estimated"] == "yes" and estimated.stats().measured == 0


def test_a_cost_model_for_a_replay_is_refused(module: tvm.IRModule, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.touch()
    with pytest.raises(LogError, match="leave out replay=True or cost_model="):
        collage.optimize(module, TARGETS, log=log, replay=True, cost_model=Flat())


def test_a_measured_model_of_the_users_is_no_estimate(session: Session) -> None:
    model = MeasuredCostModel(session.context, config=CONFIG)
    model.stats.measured = 7
    costing = choose_costing(session, model, None)
    with costing.open() as opened:
        assert opened is model and not costing.builds_beside
        model.stats.measured += 2
    assert costing.stats().measured == 2, "what it measured before is not ours"
    here = policy_of(CPU).detect()
    known = {"name": here.name, "cores": str(here.cores), "threads": "1"}
    assert known.items() <= costing.device().items()


def test_an_optimization_with_a_measured_model_reports_measurements(
    module: tvm.IRModule, tmp_path: Path
) -> None:
    mine = open_session(TARGETS, num_threads=1)  # Its scratch folder lives as long as it does.
    with MeasuredCostModel(mine.context, config=CONFIG) as model:
        result = collage.optimize(
            module, TARGETS, cost_model=model, num_threads=1, strategy="single:openblas"
        )
        report = result.report
        assert "estimated" not in report.device
        assert report.search.measured == model.stats.measured == 1
    (row,) = report.end_to_end
    assert row.note == "" and report.outputs_max_rel_diff is not None


def test_a_measured_model_with_another_number_of_threads_is_refused(
    module: tvm.IRModule, session: Session
) -> None:
    """The bundle would state one number, and its kernels run with the other."""
    with (
        MeasuredCostModel(session.context, config=CONFIG) as model,
        pytest.raises(TargetError, match=r"num_threads=1, but .* num_threads=2: give") as caught,
    ):
        collage.optimize(module, TARGETS, cost_model=model, num_threads=2)
    assert caught.value.value == 1
    assert model.stats.measured == 0


def test_a_measured_model_with_other_denormals_is_refused(
    module: tvm.IRModule, session: Session
) -> None:
    with (
        MeasuredCostModel(session.context, config=CONFIG) as model,
        pytest.raises(TargetError, match=r"ieee_denormals=False, but .*=True: give") as caught,
    ):
        collage.optimize(module, TARGETS, cost_model=model, num_threads=1, ieee_denormals=True)
    assert caught.value.value is False
    assert model.stats.measured == 0


def test_a_search_finds_a_cover_beside_the_baselines(session: Session, imported: Imported) -> None:
    events: list[ProgressEvent] = []
    costs = costs_of(imported, Flat(tvm=1.0, openblas=0.1))
    covers = find_covers(imported.graph, session.targets, "search", costs, events.append)
    names = [contender.name for contender in covers.contenders]
    assert names == ["search", "single:tvm", "single:openblas"]
    backends = {c.backend for c in covers.contenders[0].partitioning.candidates if not c.inline}
    assert "openblas" in backends
    assert covers.found.candidates
    assert {"enumerate", "search"} <= {event.stage for event in events}


def test_without_time_only_the_baselines_are_left(session: Session, imported: Imported) -> None:
    costs = costs_of(imported, Flat(tvm=None, openblas=None))
    covers = find_covers(imported.graph, session.targets, "search", costs)
    assert [c.name for c in covers.contenders] == ["single:tvm", "single:openblas"]


def test_another_strategy_searches_nothing(session: Session, imported: Imported) -> None:
    costs = costs_of(imported, Flat())
    covers = find_covers(imported.graph, session.targets, "single:openblas", costs)
    assert [contender.name for contender in covers.contenders] == ["single:openblas"]
    assert covers.found == Found() and not costs.costs


def test_repaired_covers_say_what_was_refused(session: Session, imported: Imported) -> None:
    costs = costs_of(imported, Flat())
    covers = find_covers(imported.graph, session.targets, "greedy", costs)
    rejection = Rejection(0, "openblas", "openblas.matmul", "not today")

    class Repair:
        def repair(self, contender: Contender) -> Contender:
            return Contender(f"{contender.name}, repaired", contender.partitioning)

        def rejections(self) -> list[Rejection]:
            return [rejection]

    repaired = covers.repaired(Repair())  # type: ignore[arg-type]
    assert [contender.name for contender in repaired.contenders] == ["greedy, repaired"]
    assert repaired.found.rejections == (rejection,)


def compared(session: Session, imported: Imported, model: CostModel) -> tuple[Covers, Evaluated]:
    costs = costs_of(imported, model)
    covers = find_covers(imported.graph, session.targets, "search", costs)
    comparison = EstimatedComparison(
        imported.mod, imported.graph, session.targets, session.context, costs=costs
    )
    return covers, evaluate_contenders(comparison, covers.contenders)


def test_estimates_are_compared_by_their_sums(session: Session, imported: Imported) -> None:
    covers, evaluated = compared(session, imported, Flat(tvm=1.0, openblas=0.25))
    names = [evaluation.contender.name for evaluation in evaluated.evaluations]
    assert names == [contender.name for contender in covers.contenders]
    by_name = {e.contender.name: e for e in evaluated.evaluations}
    candidates = by_name["single:openblas"].contender.partitioning.candidates
    wanted = sum(0.25 if c.backend == "openblas" else 1.0 for c in candidates if not c.inline)
    assert by_name["single:openblas"].cost.median_sec == pytest.approx(wanted)
    assert evaluated.winner.cost.median_sec == min(e.cost.median_sec for e in evaluated.evaluations)
    rows = end_to_end_rows(evaluated, costs_of(imported, Flat(tvm=1.0, openblas=0.25)))
    assert [row.name for row in rows if row.chosen] == [evaluated.winner.contender.name]
    assert all(row.note == "estimated, not measured" for row in rows)


def test_no_valid_contender_is_an_error_with_every_reason(
    session: Session, imported: Imported
) -> None:
    with pytest.raises(MeasurementError, match="single:tvm: no time"):
        compared(session, imported, Flat(tvm=None, openblas=None))


class Counted(EstimatedComparison):
    """Notes what is compared."""

    def __init__(self, session: Session, imported: Imported, costs: WorkloadCosts) -> None:
        super().__init__(
            imported.mod, imported.graph, session.targets, session.context, costs=costs
        )
        self.rounds: list[list[str]] = []

    def compare(self, contenders: Sequence[Contender]) -> list[Evaluation]:
        self.rounds.append([contender.name for contender in contenders])
        return super().compare(contenders)


def test_refinement_compares_each_trial_with_the_start(
    session: Session, imported: Imported
) -> None:
    costs = costs_of(imported, Flat(tvm=1.0, openblas=0.25))
    covers = find_covers(imported.graph, session.targets, "search", costs)
    comparison = Counted(session, imported, costs)
    evaluated = evaluate_contenders(comparison, covers.contenders)
    events: list[ProgressEvent] = []
    refined = refine_winner(
        comparison, imported.graph, covers, evaluated, trials=2, progress=events.append
    )
    everybody = [contender.name for contender in covers.contenders]
    assert comparison.rounds[0] == everybody and comparison.rounds[-1] == [*everybody, "refined"]
    assert all(names[1] == "trial" for names in comparison.rounds[1:-1])
    assert {event.stage for event in events} <= {"refine"}
    assert refined.winner.cost.median_sec <= evaluated.winner.cost.median_sec
    again = refine_winner(comparison, imported.graph, covers, evaluated, trials=0)
    assert again is evaluated


def test_statistics_and_versions_are_of_this_search(session: Session, imported: Imported) -> None:
    costing = EstimatedCosting(session, Flat())
    with costing.open() as model:
        costs = costs_of(imported, model)
        covers = find_covers(imported.graph, session.targets, "search", costs)
    evaluated = evaluate_contenders(costing.comparison(imported, costs, 0), covers.contenders)
    budget = Budget(20.0, clock=iter([1.0, 2.5]).__next__)
    stats = search_stats(costing, costs, covers, evaluated, budget)
    assert stats.candidates == len(covers.found.candidates) and stats.wall_sec == 1.5
    assert stats.distinct_workloads == costs.num_workloads > 0 == stats.measured
    assert not math.isnan(stats.building_sec)
    assert {"collage", "apache-tvm"} < set(installed_versions(session.targets))
