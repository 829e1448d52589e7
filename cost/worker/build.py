"""A builder worker's work: compile a workload and compute what it must give; tune many at once."""

from __future__ import annotations

import functools
import hashlib
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import tvm

from collage.backends.compile import compile_module, external_functions
from collage.backends.contract import ExternalBackend, Tunable, TunesOneByOne
from collage.backends.contract.errors import OutOfRangeError
from collage.backends.contract.relax_codegen import prepared
from collage.backends.toolchain.children.freed_memory import return_freed_memory
from collage.backends.toolchain.children.mapped_pages import forget_pages
from collage.cost.processes.messages import Build, Built, Compiled, CompileModel, Tune, Tuned
from collage.cost.processes.staging import compile_to_measure, stage_to_measure
from collage.cost.reference import Sample, sample_of
from collage.cost.reference.rounding import fewest_digits
from collage.cost.reference.store import References
from collage.cost.workload.content import content_key
from collage.cost.workload.shared_weights import MappedWeights, read_module
from collage.cost.workload.workload import Workload


def build(request: Build) -> Built:
    """Compile a workload into ``folder/model.so``, with test data beside it.

    The reference is evaluated here, not where the candidate runs: the builders are idle anyway
    while nothing is timed, no candidate can disturb it, and a runner may then be another machine.
    """
    workload, target = request.workload.workload(), request.target.target()
    begin = time.perf_counter()
    context = request.context
    # Of a builder that was killed at it.
    shutil.rmtree(request.folder, ignore_errors=True)
    context.work_dir.mkdir(parents=True, exist_ok=True)
    mod = _materialized(workload, request.seed, context.work_dir)
    library = compile_module(mod, [target], request.folder / "model.so", context)
    stage_to_measure(library)
    # Copies of weights: the reference needs as much again.
    return_freed_memory()
    forget_pages(context.work_dir)
    form = fewest_digits([target])
    _write_test_data(
        workload, mod, request.seed, form, request.folder, _references(request.references)
    )
    return Built(library=library.path, build_sec=time.perf_counter() - begin)


def _materialized(workload: Workload, seed: int, work_dir: Path) -> tvm.IRModule:
    """With its weights, which are in memory only while they are read: a whole network's regions are
    candidates, too, and others build and time beside this one."""
    with tempfile.TemporaryDirectory(dir=work_dir, prefix="weights-") as folder:
        # Deleted, the files are there for as long as they are mapped.
        return MappedWeights(Path(folder)).of(workload.materialize(seed))


def tune(request: Tune, tell: Callable[[Tuned], None]) -> Tuned:
    """Have a backend choose what runs many workloads, before they are built one by one.

    Parameters
    ----------
    request : Tune
        The workloads.
    tell : callable
        Told of those that are chosen for, where the backend tells.

    Returns
    -------
    Tuned
        That it is over.
    """
    target = request.target.target()
    backend = target.implementation
    assert isinstance(backend, ExternalBackend) and isinstance(backend, Tunable)
    functions, owners = [], []
    for index, workload in enumerate(request.workloads):
        found = external_functions(workload.workload().materialize(request.seed), backend)
        functions += found
        owners += [index] * len(found)
    left = Counter(owners)
    told: set[int] = set()

    def settled(index: int) -> None:
        if index in told:
            return
        told.add(index)
        left[owners[index]] -= 1
        if not left[owners[index]]:
            tell(Tuned(workloads=(owners[index],), is_over=False))

    with target.scope:
        made = prepared(functions, target)
        if isinstance(backend, TunesOneByOne):
            backend.tune_each(made, target, request.context, settled)
        else:
            backend.tune(made, target, request.context)
    return Tuned(workloads=(), is_over=True)


@functools.cache
def _references(folder: Path) -> References:
    return References(folder)


def compile_model(request: CompileModel) -> Compiled:
    """Compile one whole model and stage what its library needs."""
    library = compile_to_measure(
        read_module(request.module, request.weights),
        [target.target() for target in request.targets],
        request.output,
        request.context,
    )
    return Compiled(library=library)


def _write_test_data(
    workload: Workload,
    mod: tvm.IRModule,
    seed: int,
    float32_as: str,
    folder: Path,
    references: References,
) -> None:
    """Inputs and expected outputs as files; computed once for all backends of a workload."""

    def compute(place: Path) -> None:
        test_data(workload, mod, seed, float32_as).save(place)

    text = f"{content_key(mod)} {workload.bounds} {seed} {float32_as}"
    references.link(hashlib.sha256(text.encode()).hexdigest(), folder, compute)


def test_data(
    workload: Workload, mod: tvm.IRModule, seed: int, float32_as: str = "float32"
) -> Sample:
    """Inputs and the reference's outputs; inputs are positive where others give no number, or an
    index that selects nothing.

    Parameters
    ----------
    workload : Workload
        Says what its inputs are.
    mod : tvm.IRModule
        The workload with its weights.
    seed : int
        Of the inputs.
    float32_as : str
        As :func:`collage.cost.reference.sample_of` has it.

    Returns
    -------
    Sample
        Not finite where neither kind of inputs gives a number everywhere.

    Raises
    ------
    OutOfRangeError
        When neither kind of inputs selects what there is.
    """

    def on(*, positive: bool) -> Sample:
        return sample_of(mod, workload.make_inputs(seed, positive=positive), float32_as)

    try:
        sample = on(positive=False)
    except OutOfRangeError:
        return on(positive=True)
    if sample.is_finite:
        return sample
    with suppress(OutOfRangeError):
        positive = on(positive=True)
        if positive.is_finite:
            return positive
    return sample
