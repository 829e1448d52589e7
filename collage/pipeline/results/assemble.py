"""The end of the way: what all stages found becomes a report and a result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import tvm
import tvm_ffi

from collage._version import __version__
from collage.backends.contract import TargetSet
from collage.backends.link import CompiledLibrary
from collage.candidate_costs import WorkloadCosts
from collage.cost.contest import PairedComparison
from collage.cost.measure.replay import MeasureStats
from collage.end_to_end import EndToEndComparison, Evaluation
from collage.pipeline.costing import Costing
from collage.pipeline.covers import Covers
from collage.pipeline.evaluated import Evaluated
from collage.pipeline.imported import Imported
from collage.pipeline.limits import Budget
from collage.pipeline.results.result import Result
from collage.pipeline.session import Session
from collage.pipeline.shapes.bucketed import Bucketed
from collage.report import (
    BuilderUse,
    EndToEnd,
    Report,
    SearchStats,
    WorkerUse,
    assemble_report,
    share_of,
)


def assemble_result(
    session: Session,
    imported: Imported,
    evaluated: Evaluated,
    comparison: EndToEndComparison,
    library: CompiledLibrary,
    report: Report,
) -> Result:
    """The result of one optimization.

    Parameters
    ----------
    session : Session
        Whose scratch folder the result keeps alive.
    imported : Imported
        The model.
    evaluated : Evaluated
        The winner, and the others that run.
    comparison : EndToEndComparison
        Compiles the others when they are asked for.
    library : CompiledLibrary
        The winner's.
    report : Report
        Of it all.

    Returns
    -------
    Result
        Of the winner.
    """
    winner = evaluated.winner
    entry = Bucketed(imported.function, (imported,)).entry
    valid = [evaluation for evaluation in evaluated.evaluations if evaluation.cost.is_valid]
    return Result(
        model=imported.name,
        module=winner.module,
        partitioning=replace(winner.contender.partitioning, seconds=winner.cost.median_sec),
        report=report,
        targets=session.targets,
        inputs=imported.inputs,
        outputs=entry.outputs,
        entries=(entry,),
        library=library,
        context=session.context,
        versions=report.versions,
        _folder=session.folder,
        alternatives={e.contender.name: e.module for e in valid},
        _libraries={e.contender.name: partial(comparison.library, e) for e in valid},
    )


def report_of(
    session: Session,
    imported: Imported,
    costing: Costing,
    costs: WorkloadCosts,
    covers: Covers,
    evaluated: Evaluated,
    budget: Budget,
    remarks: Sequence[str] = (),
    max_error: float | None = None,
) -> Report:
    """The report of one optimization.

    Parameters
    ----------
    session : Session
        Its targets and threads.
    imported : Imported
        The model.
    costing : Costing
        Who measured, and how much.
    costs : WorkloadCosts
        Every cost that was asked for.
    covers : Covers
        Candidates and rejections.
    evaluated : Evaluated
        How whole models did.
    budget : Budget
        What everything took, and what it was to take.
    remarks : sequence of str
        What else is to be said.
    max_error : float, optional
        The error that was allowed.

    Returns
    -------
    Report
        Complete, but for what an export adds.
    """
    winner, samples, measured = evaluated.winner, costing.samples, costing.stats()
    return assemble_report(
        model=imported.name,
        device=costing.device(),
        versions=installed_versions(session.targets),
        targets=session.targets,
        graph=imported.graph,
        chosen=winner.contender.partitioning,
        costs=costs,
        candidates=covers.found.candidates,
        rejections=covers.found.rejections,
        end_to_end=end_to_end_rows(evaluated, costs),
        stats=search_stats(costing, costs, covers, evaluated, budget),
        outputs_max_rel_diff=winner.largest_error,
        outputs_rounding_rel_diff=None if samples is None else samples.rounding,
        remarks=(*imported.remarks, *remarks, *(() if samples is None else samples.remarks)),
        max_error=max_error,
        workers=_worker_uses(measured),
        builders=_builder_use(measured),
    )


def _worker_uses(stats: MeasureStats) -> list[WorkerUse]:
    """Who measured, and who was left out."""
    return [
        WorkerUse(
            name,
            dict(use.tasks),
            use.busy_sec,
            share_of(use.busy_sec, stats.seconds_measuring),
            use.left_out,
        )
        for name, use in stats.places.items()
        if use.tasks or use.left_out
    ]


def _builder_use(stats: MeasureStats) -> BuilderUse:
    """Who built what was measured."""
    share = share_of(stats.seconds_compiling, stats.builders * stats.seconds_measuring)
    return BuilderUse(stats.builders, stats.built, stats.seconds_compiling, share)


def search_stats(
    costing: Costing, costs: WorkloadCosts, covers: Covers, evaluated: Evaluated, budget: Budget
) -> SearchStats:
    """How much a search looked at, measured and took from the log.

    Parameters
    ----------
    costing : Costing
        Counts what was measured.
    costs : WorkloadCosts
        Count distinct workloads.
    covers : Covers
        Have the candidates.
    evaluated : Evaluated
        How many contenders were timed.
    budget : Budget
        What everything took, and what it was to take.

    Returns
    -------
    SearchStats
        Counts, and seconds.
    """
    measured, result = costing.stats(), covers.result
    return SearchStats(
        candidates=len(covers.found.candidates),
        distinct_workloads=costs.num_workloads,
        measured=measured.measured,
        from_log=measured.from_log,
        invalid=measured.invalid,
        wall_sec=budget.elapsed_sec,
        building_sec=measured.seconds_building,
        running_sec=measured.seconds_running,
        waiting_sec=measured.seconds_waiting,
        holding_sec=measured.seconds_holding,
        budget_sec=budget.total_sec,
        interrupted=budget.interrupted,
        complete=result is None or result.complete,
        unmeasured=costs.num_unmeasured,
        contenders=len(evaluated.evaluations),
        contenders_timed=sum(e.cost.is_valid for e in evaluated.evaluations),
        evaluated=result.evaluated if result else 0,
        sum_sec=result.partitioning.seconds if result and result.partitioning else None,
        bound_sec=(result.optimistic_sec or None) if result and result.evaluated else None,
        likely_sec=(result.likely_sec or None) if result and result.evaluated else None,
        assumed_flops_per_sec=costs.assumed_flops_per_sec,
    )


def end_to_end_rows(evaluated: Evaluated, costs: WorkloadCosts) -> list[EndToEnd]:
    """The comparison of whole models as the report shows it.

    Parameters
    ----------
    evaluated : Evaluated
        How they did.
    costs : WorkloadCosts
        What their parts take alone.

    Returns
    -------
    list of EndToEnd
        In the order of the contenders.
    """
    return [
        _end_to_end_row(evaluation, comparison, evaluation is evaluated.winner, costs)
        for evaluation, comparison in zip(evaluated.evaluations, evaluated.comparisons, strict=True)
    ]


def _end_to_end_row(
    evaluation: Evaluation,
    comparison: PairedComparison | None,
    chosen: bool,
    costs: WorkloadCosts,
) -> EndToEnd:
    cost, rounds = evaluation.cost, evaluation.rounds
    parts = evaluation.contender.partitioning.candidates
    ratio = comparison.ratio if comparison is not None else None
    enough = ratio is not None and math.isfinite(ratio.low)
    return EndToEnd(
        name=evaluation.contender.name,
        median_sec=cost.median_sec if cost.is_valid else None,
        spread_sec=cost.spread_sec if cost.is_valid else 0.0,
        n=len(cost.samples_sec),
        chosen=chosen,
        note=cost.reason,
        outcome=comparison.outcome.value if comparison is not None else "",
        ratio=ratio.estimate if ratio is not None else None,
        ratio_low=ratio.low if ratio is not None and enough else None,
        ratio_high=ratio.high if ratio is not None and enough else None,
        rounds=sum(sec is not None for sec in rounds.counted) if rounds is not None else 0,
        disturbed=len(rounds.disturbed) if rounds is not None else 0,
        discarded=len(rounds.discarded) if rounds is not None else 0,
        memory=evaluation.memory,
        largest_error=evaluation.largest_error,
        # Where costs are estimated the whole is the sum.
        sum_sec=math.fsum(map(costs.guess, parts)) if rounds is not None else None,
        sum_is_guessed=any(costs.known(part) is None for part in parts),
    )


def installed_versions(targets: TargetSet) -> dict[str, str]:
    """Versions of this package, of TVM and of every target's libraries."""
    versions = {
        "collage": __version__,
        "apache-tvm": tvm.__version__,
        "apache-tvm-ffi": tvm_ffi.__version__,
    }
    for target in targets:
        versions.update(target.implementation.probe().versions)
    return versions
