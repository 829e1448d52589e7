"""Runs kernel units on this machine's GPU, in processes of their own that may die.

Every unit becomes a shared library; a small program (``templates/profile.cu``, compiled once) loads
one after the other, runs it on random data, times it with events and writes a sample of its result.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import CompileError
from collage.backends.cutlass.library import TEMPLATES, template_headers
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.cutlass.question import Job
from collage.backends.cutlass.tuning import Outcome, Profiler
from collage.backends.cutlass.turns import GpuPlace, Turns, gpus_alike
from collage.backends.cutlass.unit import Unit, compile_jobs
from collage.backends.devices import CUDA
from collage.backends.storage import exclusive
from collage.backends.toolchain import compiling
from collage.backends.toolchain.artifact_cache import make_once
from collage.backends.toolchain.children.child_process import (
    ChildDiedError,
    ChildProcess,
    ChildTimeoutError,
)
from collage.backends.toolchain.cuda_toolkit import cached_cuda_compilation, cudart

REPETITIONS = 20
RUNS_AT_A_TIME = 2
"""Processes with a context on a device: while one is timed, the other gets its next run ready."""
TIME_LIMIT_SEC = 60.0
START_LIMIT_SEC = 300.0
"""Processes that begin to use a GPU do so one after the other, on the whole machine: one may wait
for long, through no fault of what it is to run."""


def gpu_profiler(options: CutlassOptions, context: BuildContext, arch: str) -> Profiler | None:
    """A profiler for this machine's GPUs, or None where the first is not of that architecture.

    Parameters
    ----------
    options : CutlassOptions
        How many kernels to compile at once, and with which flags.
    context : BuildContext
        Compiler and cache folder.
    arch : str
        What to compile for; a GPU of it is needed.

    Returns
    -------
    Profiler or None
        Its ``device`` holds that GPU's facts, which records are found by.
    """
    device = CUDA.facts(arch, context)
    if device is None:
        return None
    return GpuProfiler(device, options, context, arch, gpus_alike())


def program_compilation(context: BuildContext, arch: str) -> compiling.Compilation:
    """How the program that runs units is compiled.

    Parameters
    ----------
    context : BuildContext
        Compiler and cache folder.
    arch : str
        What to compile for.

    Returns
    -------
    native.Compilation
        Not run yet.
    """
    flags = [f"-I{TEMPLATES}"]
    return cached_cuda_compilation(
        TEMPLATES / "profile.cu", context, arch, flags, template_headers()
    )


class GpuProfiler:
    """Builds with nvcc, runs on GPUs: each spec on the one that is free when it is built.

    Parameters
    ----------
    device : mapping of str to object
        Facts of the GPUs, which records of what they measure name.
    options : CutlassOptions
        How many kernels to compile at once, and with which flags.
    context : BuildContext
        Compiler and cache folder.
    arch : str
        The GPUs', for example ``sm_90a``.
    gpus : sequence of GpuPlace
        Those to run on, all alike.
    """

    def __init__(
        self,
        device: Mapping[str, Any],
        options: CutlassOptions,
        context: BuildContext,
        arch: str,
        gpus: Sequence[GpuPlace] = (GpuPlace(),),
    ) -> None:
        self.device = device
        self.gpus = tuple(gpus)
        self.options, self.context, self.arch = options, context, arch

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome]:
        self.context.work_dir.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            name = stack.enter_context(tempfile.TemporaryDirectory(dir=self.context.work_dir))
            folder = Path(name)
            programs = [
                stack.enter_context(_Program(gpu))
                for _ in range(RUNS_AT_A_TIME)
                for gpu in self.gpus
            ]
            turns = Turns([job.spec for job in jobs])
            compilers = stack.enter_context(ThreadPoolExecutor(compile_jobs(self.options)))
            runners = stack.enter_context(ThreadPoolExecutor(len(programs)))
            # Whoever stops asking wants nothing more compiled or run either.
            stack.callback(turns.close)
            stack.callback(compilers.shutdown, wait=False, cancel_futures=True)
            program = compilers.submit(self.program)
            built = {
                unit: compilers.submit(self.build, unit, folder)
                for unit in dict.fromkeys(job.unit for job in jobs)
            }
            outcomes = [Future[Outcome]() for _ in jobs]

            def run(own: _Program) -> None:
                while (n := turns.take(own.gpu.index)) is not None:
                    unit, sample = built[jobs[n].unit], folder / f"{n}.bin"
                    _settle(outcomes[n], partial(_with, own, program, jobs[n], unit, sample))

            for own in programs:
                runners.submit(run, own)
            for outcome in outcomes:
                yield outcome.result()

    def build(self, unit: Unit, folder: Path) -> Path | str:
        """A shared library of one unit, or why nvcc refuses it.

        The object is the one that the final library takes in: it is compiled once.

        Parameters
        ----------
        unit : Unit
            What to compile.
        folder : Path
            For the library.

        Returns
        -------
        Path | str
            The library in the folder; a text where nvcc or the linker fails.
        """
        try:
            compiled = unit.compile(folder, self.options, self.context, self.arch)
            return self._link(compiled, folder / f"{unit.symbol}.so", ["-shared"])
        except CompileError as err:
            return f"it does not compile: {err}"

    def program(self) -> Path:
        """The program that runs units, compiled once per content."""
        compiled = program_compilation(self.context, self.arch).run()
        return make_once(
            compiled.with_suffix(".bin"), lambda path: self._link(compiled, path, ["-ldl"])
        )

    def _link(self, compiled: Path, output: Path, flags: Sequence[str]) -> Path:
        runtime = cudart().path
        compiling.run_tool(
            [
                *(self.context.cxx, "-o", str(output), str(compiled), str(runtime)),
                *(f"-Wl,-rpath,{runtime.parent}", *flags),
            ]
        )
        return output


def _settle(future: Future[Outcome], run: Callable[[], Outcome]) -> None:
    """Give a future what a run gives or raises."""
    try:
        future.set_result(run())
    except Exception as err:  # noqa: BLE001 (raised where it is waited for)
        future.set_exception(err)


def _with(
    program: _Program, compiled: Future[Path], job: Job, unit: Future[Path | str], sample: Path
) -> Outcome:
    """Run a job, once it is built, with a program that has nothing to do."""
    path, library = compiled.result(), unit.result()
    if isinstance(library, str):
        return Outcome(error=library)
    try:
        used = program.is_running
        try:
            return _outcome(program, path, job, library, sample)
        except _DiedError:
            if not used:
                raise
            # An earlier run may have harmed the process; only a fresh one can accuse.
            return _outcome(program, path, job, library, sample)
    except _RunError as err:
        return Outcome(error=str(err))


def _outcome(program: _Program, path: Path, job: Job, library: Path, sample: Path) -> Outcome:
    if not program.is_running:
        program.start(path)
    tensors = (*job.spec.inputs, job.spec.output)
    fields = [
        *(str(library), job.unit.symbol, str(sample), str(REPETITIONS)),
        ",".join(map(str, job.sizes)),
        ",".join(float(x).hex() for x in job.spec.scalars),
        ",".join(f"{tensor.dtype}:{tensor.size}" for tensor in tensors),
    ]
    program.send("\t".join(fields))
    program.receive("ready")
    # Loading and the first run, which are behind it, take longest and need no device to themselves.
    with exclusive(CUDA, index=program.gpu.index):
        program.send("go")
        answer = program.receive("{")
    return Outcome(float(np.median(json.loads(answer)["sec"])), np.fromfile(sample, np.float32))


class _RunError(Exception):
    """A run came to nothing."""


class _DiedError(_RunError):
    """The program ended instead of answering."""


class _Program:
    """The program, started when it is needed; a context manager that ends it.

    Parameters
    ----------
    gpu : GpuPlace
        The one that it runs on.
    """

    def __init__(self, gpu: GpuPlace) -> None:
        self.gpu = gpu
        self._process: ChildProcess | None = None

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._end(TIME_LIMIT_SEC)

    @property
    def is_running(self) -> bool:
        """Whether it was started, and has answered all that it was asked."""
        return self._process is not None

    def start(self, path: Path) -> None:
        """Start the program at ``path``."""
        self._process = ChildProcess([str(path)], self.gpu.environment, own_group=False)
        self.receive("started", START_LIMIT_SEC)

    def send(self, line: str) -> None:
        """Hand it a line; when it has ended, :meth:`receive` says why."""
        assert self._process is not None
        self._process.send(line.encode())

    def receive(self, begin: str, limit_sec: float | None = None) -> str:
        """Its next line, which begins so.

        Raises
        ------
        _DiedError
            When it ends instead; says why.
        _RunError
            When it does not answer in time, or something else; it is ended.
        """
        assert self._process is not None
        limit_sec = TIME_LIMIT_SEC if limit_sec is None else limit_sec
        try:
            answer = self._process.receive(limit_sec).decode(errors="replace")
        except ChildTimeoutError as err:
            self._end()
            raise _RunError(f"it did not end within {limit_sec:g} s") from err
        except ChildDiedError as err:
            self._end()
            last = err.last_words or "no message"
            raise _DiedError(f"it failed with exit status {err.status}: {last}") from err
        if not answer.startswith(begin):
            self._end(TIME_LIMIT_SEC)
            raise _RunError(f"it prints '{answer.strip()}'")
        return answer

    def _end(self, limit_sec: float = 0.0) -> None:
        """End it, if it has not ended; with some time to do so by itself."""
        process, self._process = self._process, None
        if process is not None:
            process.end(limit_sec)
