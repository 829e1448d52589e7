"""Runs kernel units on this machine's GPU, each in a process of its own that may die.

Every unit becomes a shared library; one small program (``templates/profile.cu``, compiled once)
loads it, runs it on random data, times it with events and writes a sample of its result.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
            with exclusive("cuda"):
                return [self._run(program.result(), job, built[job.unit], folder) for job in jobs]

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

    def _run(self, program: Path, job: Job, library: Path | str, folder: Path) -> Outcome:
        if isinstance(library, str):
            return Outcome(error=library)
        sample = folder / "sample.bin"
        command = [str(program), str(library), job.unit.symbol, str(sample), str(REPETITIONS)]
        command += ["--sizes", *map(str, job.sizes)]
        command += ["--scalars", *(float(x).hex() for x in job.spec.scalars)]
        command += ["--tensors", *map(_tensor, (*job.spec.inputs, job.spec.output))]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_SEC
            )
        except subprocess.TimeoutExpired:
            return Outcome(error=f"it did not end within {TIME_LIMIT_SEC:g} s")
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return Outcome(error=f"it failed with exit status {done.returncode}: {last}")
        sec = float(np.median(json.loads(done.stdout)["sec"]))
        return Outcome(sec, np.fromfile(sample, np.float32))


def _tensor(tensor: TensorSpec) -> str:
    return f"{tensor.dtype}:{tensor.num_elements}"
