"""``collage.optimize``: the whole way, wiring only."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray

from collage._version import __version__
from collage.backends.compile import library_needs
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import TargetError
from collage.backends.contract.registry import get_backend
from collage.backends.devices import common_device, device_of
from collage.bundle.bundle import TensorInfo, random_array
from collage.candidate_costs import WorkloadCosts
from collage.config import Config
from collage.cost.base import CostModel
from collage.cost.database.jsonl import Database
from collage.cost.device import Device, policy_of
from collage.cost.device.recorded import recorded_device
from collage.cost.models.measured import MeasuredCostModel
from collage.cost.progress import ProgressEvent as MeasureEvent
from collage.cost.reference import evaluate
from collage.end_to_end._base import Contender, EndToEndComparison, Evaluation, best
from collage.end_to_end.baselines import check_strategy, find_contenders, taking_part
from collage.end_to_end.estimated import EstimatedComparison
from collage.end_to_end.measured import MeasuredComparison
from collage.end_to_end.repair import Undoer
from collage.importers import ImportedModel, load_model
from collage.normalize import normalize
from collage.passes.channels_last import to_channels_last
from collage.passes.combine_parallel_matmul import combine_parallel_matmul
from collage.passes.expand_attention import expand_attention
from collage.pipeline.prefetch import Ahead
from collage.pipeline.result import Result
from collage.progress import ProgressCallback, ProgressEvent
from collage.report.assemble import assemble_report
from collage.report.data import EndToEnd, SearchStats
from collage.search.dataflow import DataflowGraph
from collage.search.evolutionary import refine
from collage.search.partitioning import Partitioning
from collage.search.rules import Found
from collage.targets import TargetLike, resolve_targets


def optimize(
    model: Any,
    targets: Sequence[TargetLike] = ("llvm",),
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    log: str | Path | None = None,
    replay: bool = False,
    time_budget_sec: float | None = None,
    strategy: str = "search",
    refine_trials: int = 0,
    refine_storage: str | None = None,
    num_threads: int | None = None,
    allow_code: bool = False,
    seed: int = 0,
    cost_model: CostModel | None = None,
    progress: ProgressCallback | None = None,
) -> Result:
    """Find the fastest partitioning of a model by measurement, and compile it.

    Parameters
    ----------
    model : tvm.IRModule, path, onnx.ModelProto or torch.export.ExportedProgram
        See :func:`collage.importers.load_model`.
    targets : sequence
        TVM targets and external codegen targets, as names, dicts or ``tvm.target.Target``. TVM
        itself always takes part.
    shapes : mapping of str to sequence of int, optional
        For inputs with open dimensions.
    log : path, optional
        JSON Lines; measurements found there are not made again, new ones are appended as they are
        made. So is what backends find by tuning their kernels.
    replay : bool
        Measure nothing and leave the log as it is: what it lacks is an error. A log of a GPU can be
        replayed where there is none.
    time_budget_sec : float, optional
        No new candidate is measured after this; the end-to-end comparison is made all the same.
    strategy : str
        ``search``; or, without a search, ``greedy`` or ``single:<backend>``.
    refine_trials : int
        Afterwards, this many trials of changes to the best partitioning, on end-to-end time.
    refine_storage : str, optional
        An Optuna storage URL that keeps those trials, so that they can be resumed.
    num_threads : int, optional
        Threads of every backend's kernels; 0 for all cores, which is the default.
    allow_code : bool
        Whether a TVMScript ``.py`` file may be run.
    seed : int
        Of the inputs that are run on, and of the refinement.
    cost_model : CostModel, optional
        Asked for costs in place of measuring, for example a
        :class:`~collage.cost.models.roofline.RooflineCostModel` on a machine without the device.
        Nothing is run then, and the end-to-end comparison is between estimates.
    progress : callable, optional
        Told about every step.

    Returns
    -------
    Result
        The fastest, by measurement, of the search's answer, every single backend and greedy.

    Raises
    ------
    UserError
        Something given is wrong; its subclasses say what.

    Examples
    --------
    >>> import collage
    >>> import onnx.parser
    >>> net = onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[1, 8] x) => (float[1, 8] y) { y = Relu(x) }'''
    ... )
    >>> result = collage.optimize(net, ["llvm"], log="net.jsonl")
    >>> [candidate.backend for candidate in result.partitioning.candidates]
    ['tvm']
    >>> sorted(row.name for row in result.report.end_to_end)
    ['search', 'single:tvm']

    The log now holds every measurement, so that the same result is had without any:

    >>> again = collage.optimize(net, ["llvm"], log="net.jsonl", replay=True)
    >>> again.module.script() == result.module.script()
    True
    """
    begin = time.monotonic()
    tell = progress if progress is not None else _ignore
    resolved = resolve_targets(targets)
    check_strategy(strategy, resolved)
    library_needs(resolved)  # Refuses targets whose libraries clash, before any work is done.
    config = Config.from_environment()
    threads = config.num_threads if num_threads is None else num_threads
    place = Path(log).absolute() if log is not None else None
    database = Database(place, read_only=replay)
    device = None
    if cost_model is None:
        device = _replayed_device(resolved, database) if replay else _measured_device(resolved)
    for problem in database.problems:
        tell(ProgressEvent("log", 0, 0, f"{log}: {problem}; skipped"))

    folder = TemporaryDirectory(prefix="collage-")
    context = BuildContext(
        config.cache_dir, Path(folder.name), threads, config.cxx, tuning_log=place, replay=replay
    )
    with ExitStack() as stack:
        begun = [] if replay else taking_part(strategy, resolved)
        ahead = stack.enter_context(Ahead(begun, context))
        tell(ProgressEvent("import", 0, 2, _model_text(model)))
        imported = load_model(model, shapes=shapes, allow_code=allow_code)
        tell(ProgressEvent("import", 1, 2, "normalizing"))
        mod = _normalized(imported.mod, resolved)
        graph = DataflowGraph.from_function(mod["main"], mod)
        tell(ProgressEvent("import", 2, 2, f"{len(graph)} operators"))
        if not common_device(resolved).compiles_beside:
            ahead.wait()  # The cores are what is going to be timed on.
        if cost_model is None:
            measured = MeasuredCostModel(
                context,
                database,
                device=device,
                time_budget_sec=time_budget_sec,
                replay_only=replay,
                progress=lambda event: tell(_translate(event)),
            )
            cost_model = stack.enter_context(measured)
        costs = WorkloadCosts(mod, graph, cost_model)
        contenders, found = find_contenders(graph, resolved, strategy, costs, cost_model, tell)
        undoer = Undoer(mod, graph, resolved[0], context, costs, tell, replay=replay)
        contenders = [undoer.undo(contender) for contender in contenders]
        found = replace(found, rejections=(*found.rejections, *undoer.rejections()))
        gate: EndToEndComparison
        if isinstance(cost_model, MeasuredCostModel):
            inputs = _inputs(imported, seed)
            expected = evaluate(mod, inputs)
            gate = MeasuredComparison(
                *(mod, graph, resolved, context), model=cost_model, inputs=inputs, expected=expected
            )
        else:
            gate = EstimatedComparison(mod, graph, resolved, context, costs=costs)
        standings = gate.compare(contenders)
        winner = best(standings)
        if refine_trials > 0:
            refined = _refine(graph, winner, found, gate, refine_trials, refine_storage, seed, tell)
            standings = gate.compare([*contenders, Contender("refined", refined)])
            winner = best(standings)
        library = gate.library(winner)
        measuring = cost_model.stats if isinstance(cost_model, MeasuredCostModel) else None
    stats = SearchStats(
        candidates=len(found.candidates),
        distinct_workloads=costs.num_workloads,
        measured=measuring.measured if measuring else 0,
        from_log=measuring.from_log if measuring else 0,
        invalid=measuring.invalid if measuring else 0,
        wall_sec=time.monotonic() - begin,
        building_sec=measuring.seconds_building if measuring else 0.0,
        running_sec=measuring.seconds_running if measuring else 0.0,
        waiting_sec=measuring.seconds_waiting if measuring else 0.0,
        holding_sec=measuring.seconds_holding if measuring else 0.0,
    )
    versions = _versions(resolved)
    report = assemble_report(
        model=imported.name,
        device=_device(device, resolved[0], threads),
        versions=versions,
        targets=resolved,
        graph=graph,
        chosen=winner.contender.partitioning,
        costs=costs,
        candidates=found.candidates,
        rejections=found.rejections,
        end_to_end=_end_to_end(standings, winner),
        stats=stats,
        outputs_max_rel_diff=winner.largest_error,
    )
    return Result(
        model=imported.name,
        module=winner.module,
        partitioning=replace(winner.contender.partitioning, seconds=winner.cost.median_sec),
        report=report,
        targets=resolved,
        inputs=tuple(TensorInfo(s.name, s.shape, s.dtype) for s in imported.inputs),
        outputs=tuple(TensorInfo(s.name, s.shape, s.dtype) for s in imported.outputs),
        library=library,
        context=context,
        versions=versions,
        _folder=folder,
        alternatives={s.contender.name: s.module for s in standings if s.cost.is_valid},
        _libraries={
            s.contender.name: partial(gate.library, s) for s in standings if s.cost.is_valid
        },
    )


def _normalized(mod: tvm.IRModule, targets: Sequence[BackendTarget]) -> tvm.IRModule:
    """The canonical form, as the targets' device wants it."""
    mod, device = normalize(mod), common_device(targets)
    if device.channels_last:
        mod = combine_parallel_matmul(to_channels_last(mod))
    if device.has_attention:
        return mod
    expanded = expand_attention(mod)
    return mod if expanded is mod else normalize(expanded)


def _refine(
    graph: DataflowGraph,
    winner: Evaluation,
    found: Found,
    gate: EndToEndComparison,
    trials: int,
    storage: str | None,
    seed: int,
    tell: ProgressCallback,
) -> Partitioning:
    """Refine on end-to-end time, each trial against the start in alternation."""
    start = winner.contender
    start_sec = winner.cost.median_sec
    done = 0

    def seconds(partitioning: Partitioning) -> float:
        nonlocal done
        done += 1
        tell(ProgressEvent("refine", min(done, trials), trials, partitioning.origin))
        reference, trial = gate.compare([start, Contender("trial", partitioning)])
        # Times of different minutes do not compare; ratios to the same start do.
        return start_sec * trial.cost.median_sec / reference.cost.median_sec

    known = Partitioning(start.partitioning.candidates, start_sec, start.partitioning.origin)
    return refine(
        graph,
        known,
        found.candidates,
        seconds,
        trials=trials,
        storage=storage,
        study_name=f"collage-{winner.key[:16]}",
        seed=seed,
    )


def _inputs(imported: ImportedModel, seed: int) -> list[NDArray[Any]]:
    infos = [TensorInfo(s.name, s.shape, s.dtype) for s in imported.inputs]
    return [np.asarray(random_array(info, seed + i)) for i, info in enumerate(infos)]


def _end_to_end(standings: Sequence[Evaluation], winner: Evaluation) -> list[EndToEnd]:
    return [
        EndToEnd(
            name=standing.contender.name,
            median_sec=standing.cost.median_sec if standing.cost.is_valid else None,
            spread_sec=standing.cost.spread_sec if standing.cost.is_valid else 0.0,
            n=len(standing.cost.samples_sec),
            chosen=standing is winner,
            note=standing.cost.reason,
        )
        for standing in standings
    ]


def _versions(targets: Sequence[BackendTarget]) -> dict[str, str]:
    versions = {
        "collage": __version__,
        "apache-tvm": tvm.__version__,
        "apache-tvm-ffi": tvm_ffi.__version__,
    }
    for target in targets:
        versions.update(get_backend(target.backend).probe().versions)
    return versions


def _measured_device(targets: Sequence[BackendTarget]) -> Device:
    """The device here that costs are measured on."""
    device = common_device(targets)
    if not device.is_here():
        raise TargetError(
            "there is no GPU here to measure on; to compile on estimated costs, give "
            "cost_model=RooflineCostModel(), on the command line --estimate",
            value=str(targets[0].device),
        )
    return policy_of(device).detect()


def _replayed_device(targets: Sequence[BackendTarget], database: Database) -> Device:
    """The device here that a log may be of; for a GPU that is not here, the log's own."""
    device = common_device(targets)
    arch = device.architecture(targets[0].device)
    if device.unfit(arch):
        return recorded_device(database.records(), arch)
    return _measured_device(targets)


def _device(device: Device | None, native: BackendTarget, num_threads: int) -> dict[str, str]:
    if device is None:
        return {"name": device_of(native.device).architecture(native.device), "estimated": "yes"}
    threads = str(num_threads or device.cores)
    return {"name": device.name, "cores": str(device.cores), "threads": threads}


def _translate(event: MeasureEvent) -> ProgressEvent:
    return ProgressEvent(event.stage, event.done, event.total, event.message)


def _ignore(_: ProgressEvent) -> None:
    """The callback of those who do not want to know."""


def _model_text(model: Any) -> str:
    return str(model) if isinstance(model, str | Path) else type(model).__name__
