"""Runs kernel units on this machine's GPU, each in a process of its own that may die.

Every unit becomes a shared library; one small program (``templates/profile.cu``, compiled once)
loads it, runs it on random data, times it with events and writes a sample of its result.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from collage.backends import native
from collage.backends.base import BuildContext
from collage.backends.cuda_runtime import device_name
from collage.backends.cuda_toolkit import cached_cuda_compilation, cudart
from collage.backends.cutlass.family import TensorSpec
from collage.backends.cutlass.library import TEMPLATES, template_headers
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.cutlass.tuning import Job, Outcome, Profiler
from collage.backends.cutlass.unit import Unit, compile_jobs
from collage.backends.device_lock import exclusive
from collage.backends.errors import CompileError

REPETITIONS = 20
RUNS_AT_A_TIME = 4
"""Processes with a context on the device."""
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
            # Most of a run is starting the process and its context, which needs no device to
            # itself: several do that at a time, and are timed one by one.
            with ThreadPoolExecutor(RUNS_AT_A_TIME) as pool:
                return list(pool.map(lambda run: self._run(*run), runs))

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

    def _run(self, program: Path, job: Job, library: Path | str, sample: Path) -> Outcome:
        if isinstance(library, str):
            return Outcome(error=library)
        command = [str(program), str(library), job.unit.symbol, str(sample), str(REPETITIONS)]
        command += ["--sizes", *map(str, job.sizes)]
        command += ["--scalars", *(float(x).hex() for x in job.spec.scalars)]
        command += ["--tensors", *map(_tensor, (*job.spec.inputs, job.spec.output))]
        done = _Program(command)
        if not done.ready():
            return Outcome(error=done.failure())
        with exclusive("cuda"):
            output = done.go()
        if done.failure():
            return Outcome(error=done.failure())
        sec = float(np.median(json.loads(output)["sec"]))
        return Outcome(sec, np.fromfile(sample, np.float32))


class _Program:
    """A program that says ``ready``, waits for a line and then prints its answer and ends."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read after its end
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._out_of_time = False

    def ready(self) -> bool:
        """Whether it came that far; else it has ended."""
        assert self._process.stdout is not None
        with self._limited():
            if self._process.stdout.readline() == "ready\n":
                return True
            self._process.communicate()
            return False

    def go(self) -> str:
        """Let it go on to its end; what it printed."""
        with self._limited():
            return self._process.communicate("go\n")[0]

    def failure(self) -> str:
        """Why it failed; empty when it did not."""
        if self._out_of_time:
            return f"it did not end within {TIME_LIMIT_SEC:g} s"
        if self._process.returncode == 0:
            return ""
        self._errors.seek(0)
        last = (self._errors.read().strip().splitlines() or ["no message"])[-1]
        return f"it failed with exit status {self._process.returncode}: {last}"

    @contextmanager
    def _limited(self) -> Iterator[None]:
        def end() -> None:
            self._out_of_time = True
            self._process.kill()

        timer = threading.Timer(TIME_LIMIT_SEC, end)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _tensor(tensor: TensorSpec) -> str:
    return f"{tensor.dtype}:{tensor.num_elements}"
