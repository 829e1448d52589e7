"""Runs kernel units on this machine's GPU, in processes of their own that may die.

Every unit becomes a shared library; a small program (``templates/profile.cu``, compiled once) loads
one after the other, runs it on random data, times it with events and writes a sample of its result.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import Queue

import numpy as np

from collage.backends import native
from collage.backends.base import BuildContext
from collage.backends.cuda_runtime import device_name
from collage.backends.cuda_toolkit import cached_cuda_compilation, cudart
from collage.backends.cutlass.library import TEMPLATES, template_headers
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.cutlass.tuning import Job, Outcome, Profiler
from collage.backends.cutlass.unit import Unit, compile_jobs
from collage.backends.device_lock import exclusive
from collage.backends.errors import CompileError

REPETITIONS = 20
RUNS_AT_A_TIME = 2
"""Processes with a context on the device: while one is timed, the other gets its next run ready."""
TIME_LIMIT_SEC = 60.0


def gpu_profiler(options: CutlassOptions, context: BuildContext, arch: str) -> Profiler | None:
    """A profiler for this machine's GPU, or None where there is none of that architecture."""
    name = device_name(arch)
    return None if name is None else GpuProfiler(name, options, context, arch)


def program_compilation(context: BuildContext, arch: str) -> native.Compilation:
    """How the program that runs units is compiled."""
    flags = [f"-I{TEMPLATES}"]
    return cached_cuda_compilation(
        TEMPLATES / "profile.cu", context, arch, flags, template_headers()
    )


class GpuProfiler:
    """Builds with nvcc, runs on GPU 0."""

    def __init__(
        self, device: str, options: CutlassOptions, context: BuildContext, arch: str
    ) -> None:
        self.device = device
        self.options, self.context, self.arch = options, context, arch

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        self.context.work_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.context.work_dir) as name:
            folder = Path(name)
            units = list(dict.fromkeys(job.unit for job in jobs))
            with ThreadPoolExecutor(compile_jobs(self.options)) as pool:
                program = pool.submit(self.program)
                libraries = pool.map(lambda unit: self.build(unit, folder), units)
                built = dict(zip(units, libraries, strict=True))
                runs = [
                    (program.result(), job, built[job.unit], folder / f"{number}.bin")
                    for number, job in enumerate(jobs)
                ]
            with ExitStack() as stack, ThreadPoolExecutor(RUNS_AT_A_TIME) as pool:
                free: Queue[_Program] = Queue()
                for _ in range(RUNS_AT_A_TIME):
                    free.put(stack.enter_context(_Program()))
                return list(pool.map(lambda run: _with_one_of(free, *run), runs))

    def build(self, unit: Unit, folder: Path) -> Path | str:
        """A shared library of one unit, or why nvcc refuses it.

        The object is the one that the final library takes in: it is compiled once.
        """
        try:
            compiled = unit.compile(folder, self.options, self.context, self.arch)
            return self._link(compiled, folder / f"{unit.symbol}.so", ["-shared"])
        except CompileError as err:
            return f"it does not compile: {err}"

    def program(self) -> Path:
        """The program that runs units, compiled once per content."""
        compiled = program_compilation(self.context, self.arch).run()
        output = compiled.with_suffix(".bin")
        if not output.exists():
            with tempfile.TemporaryDirectory(dir=output.parent) as folder:
                self._link(compiled, Path(folder, output.name), ["-ldl"]).replace(output)
        return output

    def _link(self, compiled: Path, output: Path, flags: Sequence[str]) -> Path:
        runtime = cudart().path
        native.run_tool(
            [
                *(self.context.cxx, "-o", str(output), str(compiled), str(runtime)),
                *(f"-Wl,-rpath,{runtime.parent}", *flags),
            ]
        )
        return output


def _with_one_of(
    free: Queue[_Program], path: Path, job: Job, library: Path | str, sample: Path
) -> Outcome:
    """Run a job with a program that has nothing to do."""
    if isinstance(library, str):
        return Outcome(error=library)
    program = free.get()
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
    finally:
        free.put(program)


def _outcome(program: _Program, path: Path, job: Job, library: Path, sample: Path) -> Outcome:
    if not program.is_running:
        program.start(path)
    tensors = (*job.spec.inputs, job.spec.output)
    fields = [
        *(str(library), job.unit.symbol, str(sample), str(REPETITIONS)),
        ",".join(map(str, job.sizes)),
        ",".join(float(x).hex() for x in job.spec.scalars),
        ",".join(f"{tensor.dtype}:{tensor.num_elements}" for tensor in tensors),
    ]
    program.ask("\t".join(fields), "ready")
    # Loading and the first run, which are behind it, take longest and need no device to themselves.
    with exclusive("cuda"):
        answer = program.ask("go", "{")
    return Outcome(float(np.median(json.loads(answer)["sec"])), np.fromfile(sample, np.float32))


class _RunError(Exception):
    """A run came to nothing."""


class _DiedError(_RunError):
    """The program ended instead of answering."""


class _Program:
    """The program, started when it is needed; a context manager that ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed on exit

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._errors.close()

    @property
    def is_running(self) -> bool:
        """Whether it was started, and has answered all that it was asked."""
        return self._process is not None

    def start(self, path: Path) -> None:
        """Start the program at ``path``."""
        self._errors.seek(0)
        self._errors.truncate()
        self._process = subprocess.Popen(
            [str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def ask(self, line: str, begin: str) -> str:
        """Its answer of one line, which begins so.

        Raises
        ------
        _DiedError
            When it ends instead; says why.
        _RunError
            When it does not answer in time, or something else; it is ended.
        """
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        timer = threading.Timer(TIME_LIMIT_SEC, process.kill)
        timer.start()
        try:
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            out_of_time = not timer.is_alive()
            timer.cancel()
        if answer.startswith(begin):
            return answer
        status = self._end()
        if out_of_time:
            raise _RunError(f"it did not end within {TIME_LIMIT_SEC:g} s")
        if answer:
            raise _RunError(f"it prints '{answer.strip()}'")
        self._errors.seek(0)
        last = (self._errors.read().strip().splitlines() or ["no message"])[-1]
        raise _DiedError(f"it failed with exit status {status}: {last}")

    def _end(self) -> int:
        """End it, if it has not ended; its exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with process:
            try:
                # Also closes its input, upon which it ends.
                process.communicate(timeout=TIME_LIMIT_SEC)
            except subprocess.TimeoutExpired:
                process.kill()
        return process.returncode
