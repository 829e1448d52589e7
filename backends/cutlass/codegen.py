"""From all partitions of one IRModule to one static library, each distinct kernel compiled once.

One pass: every partition is read into a spec; equal specs get one configuration; equal kernel units
one symbol, one file and one compilation, cached by content across modules and processes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import relax

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import CodegenError
from collage.backends.cutlass.families import Configuration, KernelSpec, OperatorFamily
from collage.backends.cutlass.library import TEMPLATES, template_headers
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.cutlass.partition import Partition, read_partition
from collage.backends.cutlass.profiler import gpu_profiler
from collage.backends.cutlass.question import Question
from collage.backends.cutlass.tuning import SCHEMA, Tuner
from collage.backends.cutlass.unit import Unit, compile_jobs
from collage.backends.storage import TuningStore
from collage.backends.storage.tuning_stage import nobody_builds
from collage.backends.toolchain import compiling
from collage.backends.toolchain.cuda_toolkit import arch_of, cached_cuda_compilation, find_toolkit
from collage.backends.toolchain.stubs import Stubs

_MAX_INPUTS = 8
"""``COLLAGE_CUTLASS_MAX_INPUTS`` in ``templates/cutlass_runtime.h``."""


@dataclass(frozen=True)
class Entry:
    """A partition's entry point, as the stub template sees it."""

    partition: Partition
    unit: Unit
    sizes: tuple[int, ...]

    @property
    def spec(self) -> KernelSpec:
        return self.partition.spec


@dataclass(frozen=True)
class Plan:
    """Everything that is compiled for one IRModule."""

    entries: tuple[Entry, ...]

    @property
    def units(self) -> list[Unit]:
        """The distinct units, in order of first use."""
        return list(dict.fromkeys(entry.unit for entry in self.entries))

    @property
    def specs(self) -> list[KernelSpec]:
        """The distinct specs, in order of first use."""
        return list(dict.fromkeys(entry.spec for entry in self.entries))


def compile_functions(
    functions: Sequence[relax.Function],
    known: Sequence[OperatorFamily],
    target: BackendTarget,
    context: BuildContext,
) -> tvm.runtime.Module:
    """A library of CUTLASS's kernels for all partitions of one IRModule.

    Parameters
    ----------
    functions, target, context
        As :meth:`ExternalBackend.codegen` gets them.
    known : sequence of OperatorFamily
        The families to read them with.

    Returns
    -------
    tvm.runtime.Module
        A static library that exports the partitions' symbols.

    Raises
    ------
    CodegenError
        When a function is not what the patterns match, or no configuration runs it.
    CompileError
        When nvcc or the linker fails.
    """
    arch = arch_of(target.device)
    partitions = read_partitions(functions, known, target.options, arch)
    chosen = tune(partitions, target, context)
    return _compile_plan(plan(partitions, chosen, target.options), target.options, context, arch)


def read_partitions(
    functions: Sequence[relax.Function],
    known: Sequence[OperatorFamily],
    options: CutlassOptions,
    arch: str,
) -> list[Partition]:
    """Read every partition function of one IRModule, constants lifted.

    Parameters
    ----------
    functions, known
        Of any number of modules; the first family that knows a composite's name reads it.
    options : CutlassOptions
        Of the target.
    arch : str
        For example ``sm_90a``.

    Returns
    -------
    list[Partition]
        In the order of the functions; several may have equal specs.

    Raises
    ------
    CodegenError
        When a function is not what the patterns match.
    """
    return [read_partition(function, known, options, arch) for function in functions]


def tune(
    partitions: Sequence[Partition],
    target: BackendTarget,
    context: BuildContext,
    settled: Callable[[KernelSpec], None] = nobody_builds,
) -> dict[KernelSpec, Configuration]:
    """The configuration of every distinct spec: remembered, measured, or the heuristic's.

    It is measured where there is a GPU of the target's architecture, and then remembered in the
    tuning log for all partitions and models.

    Parameters
    ----------
    partitions : sequence of Partition
        As :func:`read_partitions` gives them.
    target : BackendTarget
        With this backend's options, for an architecture.
    context : BuildContext
        Has the log; nothing is measured in its replay.
    settled : callable, optional
        Told of each spec as soon as its configuration is known.

    Returns
    -------
    dict[KernelSpec, Configuration]
        By spec; a heuristic's where no GPU of the architecture is here and the log knows none.

    Raises
    ------
    CodegenError
        When none of a spec's configurations runs on the GPU.
    ReplayMissError
        In a replay, when the log does not know a spec.
    """
    arch = arch_of(target.device)
    questions = {
        p.spec: Question(
            p.spec, p.family, tuple(p.family.configurations(p.spec, target.options, arch))
        )
        for p in partitions
    }
    log = TuningStore.of("cutlass", SCHEMA, context)
    profiler = gpu_profiler(target.options, context, arch)
    tuner = Tuner(log, profiler, target.options, arch, hurried=context.hurried)
    return tuner.choose(list(questions.values()), settled)


def plan(
    partitions: Sequence[Partition],
    chosen: Mapping[KernelSpec, Configuration],
    options: CutlassOptions | None = None,
) -> Plan:
    """Give every partition its unit, by its spec's configuration.

    Parameters
    ----------
    partitions : sequence of Partition
        In the order of their entry points.
    chosen : mapping of KernelSpec to Configuration
        A configuration for every partition's spec.
    options : CutlassOptions, optional
        What the kernels' compiler flags follow from.

    Returns
    -------
    Plan
        Entries in the order of the partitions; equal specs share a unit.

    Raises
    ------
    CodegenError
        When a kernel takes more inputs than the runtime hands over.
    """
    units: dict[KernelSpec, Unit] = {}
    entries = []
    for partition in partitions:
        spec, family = partition.spec, partition.family
        if spec not in units:
            units[spec] = Unit.of(family.render(spec, chosen[spec]), options)
        if len(spec.inputs) > _MAX_INPUTS:
            raise CodegenError(
                f"'{partition.symbol}' has {len(spec.inputs)} inputs; at most {_MAX_INPUTS} fit",
                value=partition.symbol,
            )
        sizes = family.launch_sizes(spec, chosen[spec])
        entries.append(Entry(partition, units[spec], sizes))
    return Plan(tuple(entries))


def _compile_plan(
    made: Plan, options: CutlassOptions, context: BuildContext, arch: str
) -> tvm.runtime.Module:
    """Compile and merge a plan's units and entry points.

    Raises
    ------
    CompileError
        When nvcc or the linker fails.
    """
    stubs = render_stubs(made)
    if options.tmp_dir:
        _keep_sources(made.units, stubs.text, Path(options.tmp_dir))
    context.work_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=context.work_dir) as name:
        folder = Path(name)
        with ThreadPoolExecutor(compile_jobs(options)) as pool:
            runtime = pool.submit(runtime_compilation(context, arch).run)
            kernels = pool.map(lambda u: u.compile(folder, options, context, arch), made.units)
            objects = [*kernels, runtime.result()]
    return stubs.compile(objects, context, [f"-I{find_toolkit().include}"])


def runtime_compilation(context: BuildContext, arch: str) -> compiling.Compilation:
    """How the runtime is compiled.

    Parameters
    ----------
    context : BuildContext
        Compiler and cache folder.
    arch : str
        What to compile for, for example ``sm_90a``.

    Returns
    -------
    native.Compilation
        Not run yet.
    """
    depends = [TEMPLATES / "cutlass_runtime.h", *template_headers()]
    return cached_cuda_compilation(
        TEMPLATES / "cutlass_runtime.cc", context, arch, [f"-I{TEMPLATES}"], depends
    )


def render_stubs(made: Plan) -> Stubs:
    """The entry points that TVM calls, in C: data for the runtime."""
    symbols = [entry.partition.symbol for entry in made.entries]
    filters = {"float32": lambda number: f"{float(number).hex()}f"}
    return Stubs.render(TEMPLATES, symbols, filters=filters, entries=made.entries, units=made.units)


def _keep_sources(units: Sequence[Unit], stubs: str, folder: Path) -> None:
    """Leave the generated sources where a user can read them."""
    folder.mkdir(parents=True, exist_ok=True)
    for unit in units:
        unit.write(folder)
    (folder / "cutlass_stubs.c").write_text(stubs, encoding="utf-8")
