"""``collage.optimize``: the whole way from a model to the fastest library, stage by stage.

The stages are imported when it is called: that takes seconds, TVM among them, which a budget is
for, too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collage._tvm_alone import import_tvm

if TYPE_CHECKING:
    from collage.cost.base import CostModel
    from collage.cost.engines import WorkersLike
    from collage.cost.progress import ProgressCallback
    from collage.cost.reference import OwnMetric
    from collage.importers import ExampleInputs
    from collage.pipeline.inputs.samples import Inputs
    from collage.pipeline.restrict import Wishes
    from collage.pipeline.results.result import Result
    from collage.pipeline.shapes.buckets import Given
    from collage.targets import TargetLike


def optimize(
    model: Any,
    targets: Sequence[TargetLike] | None = None,
    *,
    shapes: Given | None = None,
    most_buckets: int = 4,
    log: str | Path | None = None,
    replay: bool = False,
    time_budget_sec: float | None = None,
    strategy: str = "search",
    covers: int = 1,
    pin: Wishes | None = None,
    ban: Wishes | None = None,
    layouts: Sequence[str] | None = None,
    memory_limit_bytes: int | None = None,
    max_error: float | None = None,
    precision: Sequence[str] | None = None,
    calibration: str = "auto",
    metric: str | OwnMetric | None = None,
    refine_trials: int = 0,
    refine_storage: str | None = None,
    num_threads: int | None = None,
    ieee_denormals: bool = False,
    weights: str = "auto",
    inputs: Inputs | None = None,
    allow_code: bool = False,
    example_inputs: ExampleInputs = None,
    dynamic_shapes: Any = None,
    seed: int = 0,
    cost_model: CostModel | None = None,
    workers: WorkersLike = "local",
    progress: ProgressCallback | None = None,
) -> Result:
    """Find the fastest partitioning of a model by measurement, and compile it.

    Parameters
    ----------
    model : path, tvm.IRModule, onnx.ModelProto, torch.nn.Module or ExportedProgram
        See :func:`collage.importers.load_model`.
    targets : sequence, optional
        TVM targets and external codegen targets, as names, dicts or ``tvm.target.Target``. TVM
        itself always takes part. By default all libraries for a CPU that are usable here, so that
        the answer is no slower than any of them alone.
    shapes : mapping of str to sequence, optional
        For inputs with open dimensions, an extent for each axis: a number, a range as ``"1:8"``, or
        buckets as ``"1|4|8"``. With ranges and buckets the model is compiled for several shapes,
        see :doc:`/shapes`. A mapping, ``{1: 0.7, 8: 0.3}``, says how often which extent comes. A
        dimension that has a name may be given by it, wherever it stands: ``{"batch": "1:8"}``.
    most_buckets : int
        How many buckets are chosen where it says so, two or more.
    log : path or str, optional
        A file of JSON Lines, or the URL of a database that a team shares, such as
        ``sqlite:///team.db`` or ``postgresql+psycopg://host/collage``. Measurements found there are
        not made again, new ones are appended as they are made. So is what backends find by tuning
        their kernels.
    replay : bool
        Measure nothing and leave the log as it is: what it lacks is an error. A log of a GPU can be
        replayed where there is none.
    time_budget_sec : float, optional
        Of everything, up to an exported bundle. When it is nearly spent, the answer is what is best
        by then, see :doc:`/budget`. In a replay, what the log lacks is unknown instead of an error.
    strategy : str
        ``search``; or, without a search, ``greedy`` or ``single:<backend>``.
    covers : int
        How many of the search's covers are compiled and timed whole: its answer, and others that
        would be faster if sums were off in one of two ways, see :doc:`/measuring`. Those that there
        is no time for are left out; with ``max_error`` there is one for each error anyway.
    pin, ban : mapping of str to str or sequence of str, optional
        By pattern, the backends that alone may run what it matches, or that may not; the pattern is
        held against operators' types and nodes' names, see :doc:`/deploy`. All that is compared
        keeps to them. ``pin={"backbone.*": "onednn"}``, ``ban={"nn.softmax": "onednn"}``.
    layouts : sequence of str, optional
        With ``["plain", "channels_last"]`` the search chooses for each picture between partitions
        whether its channels come first or last, see :doc:`/measuring`. By default they come first
        on a CPU and last on a GPU.
    memory_limit_bytes : int, optional
        The most that weights, their copies, activations and workspace may take together, as the
        report states it, see :doc:`/deploy`. Whoever takes more is not compared, and the search
        looks for what takes less.
    max_error : float, optional
        The largest difference to the reference that outputs may have, relative to the largest value
        of each. Libraries may then compute float32 tensors with fewer digits, product by product,
        where that is faster; what is compared and is off by more is out. See :doc:`/precision`.
    precision : sequence of str, optional
        What they may compute in where ``max_error`` is given, for example ``["bfloat16"]``; by
        default all that the targets offer.
    calibration : str
        How steps of int8 are chosen by what samples show of values: ``minmax``, ``percentile`` or
        ``entropy``; by default the one that makes the least error.
    metric : str or callable, optional
        What ``max_error`` is the largest allowed value of, in place of outputs' largest difference:
        ``top1``, the share of classes that differ, or a function that takes a sample's outputs and
        those of the reference, lists of arrays, and returns a number, 0 where nothing is wrong. The
        mean over the samples counts.
    refine_trials : int
        Afterwards, this many trials of changes to the best partitioning, on end-to-end time.
    refine_storage : str, optional
        An Optuna storage URL, or the path of a journal file, that keeps those trials, so that they
        can be resumed. Several processes, on one machine or many, may be at them at once.
    num_threads : int, optional
        Threads of every backend's kernels; 0 for all cores, which is the default.
    ieee_denormals : bool
        Compute with denormal numbers, as IEEE 754 has it. By default all threads of a CPU flush
        them to zero while a call runs, since an operation on one can take a hundred times as long.
    weights : str
        Where the bundle has its weights: ``inside`` of ``model.so``; ``beside`` it, in files that
        are mapped when it is loaded, see :doc:`/deploy`; by default beside where they take more
        than 128 MiB on a CPU, 1 GiB on a GPU.
    inputs : mapping or sequence of mapping, optional
        What to run the model on, arrays by input name; several samples are all checked, and the
        first is timed on. Without, inputs are drawn, see :doc:`/correctness`.
    allow_code : bool
        Whether a TVMScript ``.py`` file may be run.
    example_inputs : sequence or mapping, optional
        For a ``torch.nn.Module``: what it is called with, by position or by name, of the shapes to
        optimize for. It is exported in evaluation mode, see :doc:`/pytorch`.
    dynamic_shapes : dict, tuple or list, optional
        For a ``torch.nn.Module``: its open dimensions, as ``torch.export.export`` takes them;
        ``shapes`` says what to optimize for then.
    seed : int
        Of the inputs that are drawn, and of the refinement.
    cost_model : CostModel, optional
        Asked for costs in place of measuring, for example a
        :class:`~collage.cost.models.roofline.RooflineCostModel` on a machine without the device.
        Nothing is run then, and the end-to-end comparison is between estimates. A
        :class:`~collage.cost.models.measured.MeasuredCostModel` measures in place of the default
        one; its ``num_threads`` and ``ieee_denormals`` must be the same.
    workers : str, Engine or concurrent.futures.Executor
        Who compiles candidates and times them, see :doc:`/fleet`: ``local``, this machine with all
        of its GPUs; ``ray://head:10001``; ``rpc://tracker:9190?key=h100``; an executor, which
        compiles for this machine's devices; or a :class:`~collage.cost.measure.engine.Engine`. The
        search itself, and what compiles whole models, stays here.
    progress : callable, optional
        Informed of every step, as a :class:`~collage.cost.progress.ProgressEvent`.

    Returns
    -------
    Result
        The fastest, by measurement, of the search's answer, every single backend and greedy.

    Notes
    -----
    The first Ctrl-C (in the main thread, where nobody else handles it) ends the search: the best
    answer so far is compiled and returned. The second one is a ``KeyboardInterrupt``.

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
    began = time.monotonic()
    import_tvm()
    from collage.backends.contract.errors import UserError
    from collage.backends.toolchain.children.fork_server import fork_servers
    from collage.backends.toolchain.children.freed_memory import return_freed_memory
    from collage.cost.device import available_cores, policy_of
    from collage.cost.engines import LOCAL, engine_of
    from collage.end_to_end import check_strategy, taking_part
    from collage.importers.functions import MAIN
    from collage.pipeline.computable import require_codegen_targets
    from collage.pipeline.costing import choose_costing
    from collage.pipeline.importing import import_bucketed, import_for
    from collage.pipeline.inputs.arguments import require_well_formed
    from collage.pipeline.layouts import chooses_layouts
    from collage.pipeline.limits import Budget, answering, few_own_threads
    from collage.pipeline.one_function import Search
    from collage.pipeline.precision.calibration import check_method
    from collage.pipeline.precision.targets import checked_error, checked_metric, in_precisions
    from collage.pipeline.prefetch import Prefetch
    from collage.pipeline.session import open_session
    from collage.pipeline.several import best_of_all
    from collage.targets import resolve_targets

    require_well_formed(shapes, pin, ban, memory_limit_bytes, time_budget_sec, num_threads)
    if covers < 1:
        raise UserError(f"covers is {covers}, and has to be 1 or more", value=covers)
    max_error = checked_error(max_error, precision)
    check_method(calibration)
    own_metric = checked_metric(metric, max_error)
    if max_error is not None:
        targets = in_precisions(resolve_targets(targets), precision)
    budget = Budget(time_budget_sec, began=began)
    engine = None if workers == LOCAL else engine_of(workers)
    with answering(budget), few_own_threads(available_cores()), ExitStack() as stack:
        # Builders, timers and the contest follow each other, and each would import TVM.
        stack.enter_context(fork_servers().kept())
        session = open_session(
            targets,
            log=log,
            replay=replay,
            num_threads=num_threads,
            ieee_denormals=ieee_denormals,
            weights=weights,
            hurried=budget.hurries,
            progress=progress,
        )
        targets, progress = session.targets, session.progress
        check_strategy(strategy, targets)
        choosing = chooses_layouts(layouts, targets.device, max_error)
        budget.parallel = policy_of(targets.device).builders()
        costing = choose_costing(session, cost_model, budget, engine)
        needed = [] if replay else taking_part(strategy, targets)
        prefetch = stack.enter_context(Prefetch(needed, session.context))
        # Workers that cannot be reached are nothing to find out about after minutes.
        asked = stack.enter_context(costing.open())
        search = Search(
            *(session, costing, asked, prefetch),
            strategy=strategy,
            covers=covers,
            pin=pin,
            ban=ban,
            layouts=choosing,
            memory_limit_bytes=memory_limit_bytes,
            max_error=max_error,
            calibration=calibration,
            metric=own_metric,
            refine_trials=refine_trials,
            refine_storage=refine_storage,
            seed=seed,
            log_is_of_use=len(session.database) > 0,
        )
        importing = partial(
            import_for,
            *(model, targets),
            allow_code=allow_code,
            example_inputs=example_inputs,
            dynamic_shapes=dynamic_shapes,
            check_sec=budget.trace_check_sec,
            progress=progress,
        )
        functions = import_bucketed(shapes or {}, most_buckets, importing, search, budget)
        functions = [function.over(session.weights) for function in functions]
        return_freed_memory()
        variants = [variant for function in functions for variant in function.variants]
        for variant in variants:
            require_codegen_targets(variant.mod, variant.function, targets)
        search = replace(search, graphs=[variant.graph for variant in variants])
        if [variant.function for variant in variants] == [MAIN]:
            return search.best_of(variants[0], budget, inputs)
        return best_of_all(search, functions, budget, inputs)
