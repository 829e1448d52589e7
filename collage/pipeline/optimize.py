"""``collage.optimize``: the whole way from a model to the fastest library, stage by stage."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from collage.candidate_costs import WorkloadCosts
from collage.cost.base import CostModel
from collage.cost.progress import ProgressCallback
from collage.end_to_end import PartitionRepair, check_strategy, taking_part
from collage.pipeline.assemble import assemble_result, report_of
from collage.pipeline.costing import choose_costing
from collage.pipeline.covers import find_covers
from collage.pipeline.evaluated import evaluate_contenders, refine_winner
from collage.pipeline.imported import import_model
from collage.pipeline.prefetch import Prefetch
from collage.pipeline.result import Result
from collage.pipeline.session import open_session
from collage.targets import TargetLike


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
    ieee_denormals: bool = False,
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
    ieee_denormals : bool
        Compute with denormal numbers, as IEEE 754 has it. By default all threads of a CPU flush
        them to zero while a call runs, since an operation on one can take a hundred times as long.
    allow_code : bool
        Whether a TVMScript ``.py`` file may be run.
    seed : int
        Of the inputs that are run on, and of the refinement.
    cost_model : CostModel, optional
        Asked for costs in place of measuring, for example a
        :class:`~collage.cost.models.roofline.RooflineCostModel` on a machine without the device.
        Nothing is run then, and the end-to-end comparison is between estimates. A
        :class:`~collage.cost.models.measured.MeasuredCostModel` measures in place of the default
        one; its ``num_threads`` and ``ieee_denormals`` must be the same.
    progress : callable, optional
        Informed of every step, as a :class:`~collage.cost.progress.ProgressEvent`.

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
    session = open_session(
        targets,
        log=log,
        replay=replay,
        num_threads=num_threads,
        ieee_denormals=ieee_denormals,
        progress=progress,
    )
    targets, progress = session.targets, session.progress
    check_strategy(strategy, targets)
    costing = choose_costing(session, cost_model, time_budget_sec)
    with ExitStack() as stack:
        needed = [] if replay else taking_part(strategy, targets)
        prefetch = stack.enter_context(Prefetch(needed, session.context))
        imported = import_model(
            model, targets.device, shapes=shapes, allow_code=allow_code, progress=progress
        )
        if not targets.device.compiles_beside:
            prefetch.wait()  # The cores are what is going to be timed on.
        costs = WorkloadCosts(imported.mod, imported.graph, stack.enter_context(costing.open()))
        covers = find_covers(imported.graph, targets, strategy, costs, progress)
        repair = PartitionRepair(
            *(imported.mod, imported.graph, targets.native, session.context),
            *(costs, progress),
        )
        covers = covers.repaired(repair)
        comparison = costing.comparison(imported, costs, seed)
        evaluated = evaluate_contenders(comparison, covers.contenders)
        evaluated = refine_winner(
            *(comparison, imported.graph, covers, evaluated),
            trials=refine_trials,
            storage=refine_storage,
            seed=seed,
            progress=progress,
        )
        library = comparison.library(evaluated.winner)
    wall_sec = time.monotonic() - begin
    report = report_of(session, imported, costing, costs, covers, evaluated, wall_sec)
    return assemble_result(session, imported, evaluated, comparison, library, report)
