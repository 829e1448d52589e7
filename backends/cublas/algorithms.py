"""The algorithm of each product: measured while compiling, and remembered.

Where a GPU of the target's architecture is there, a small library (``cublas_tuner.cc``, compiled
once) times cublasLt's candidates. What it finds is kept in ``<cache_dir>/cublas/algorithms.jsonl``,
by everything that the choice depends on, so each distinct product is timed once per machine.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from collage.backends import native
from collage.backends.base import BuildContext, LibraryNeed
from collage.backends.cublas.problem import Problem
from collage.backends.cuda_runtime import has_device
from collage.backends.cuda_toolkit import CUDA_HEADER
from collage.backends.device_lock import exclusive
from collage.backends.errors import CodegenError

TEMPLATES = Path(__file__).resolve().parent / "templates"
HEADERS = (TEMPLATES / "cublas_plan.h", TEMPLATES / "cublas_problem.h", CUDA_HEADER)
CANDIDATES = 24
"""How many of cublasLt's guesses are timed."""
SCHEMA = 1


@dataclass(frozen=True)
class Device:
    """What a choice depends on besides the product.

    Attributes
    ----------
    name : str
        For example ``NVIDIA H200``.
    driver : int
        CUDA's driver version, ``1000 * major + 10 * minor``.
    version : int
        cublasLt's version, as ``cublasLtGetVersion`` has it.
    compute_capability : int
        For example 90.
    multiprocessors : int
    """

    name: str
    driver: int
    version: int
    compute_capability: int
    multiprocessors: int


@dataclass(frozen=True)
class Choice:
    """An algorithm for a product, and where it holds.

    Attributes
    ----------
    algorithm : tuple of int
        The eight 64-bit words of ``cublasLtMatmulAlgo_t``.
    time_sec, first_time_sec : float
        Of one launch: this algorithm's, and that of cublasLt's first guess.
    measured : int
        How many algorithms were timed.
    """

    device: Device
    algorithm: tuple[int, ...]
    workspace_bytes: int
    time_sec: float
    first_time_sec: float
    measured: int

    def comment(self) -> str:
        """One line for the generated source."""
        return (
            f"the fastest of {self.measured} on {self.device.name}: {self.time_sec * 1e6:.2f} us, "
            f"cublasLt's first guess {self.first_time_sec * 1e6:.2f} us"
        )


class AlgorithmLog:
    """The file of choices: JSON Lines, append-only, shared by all processes of a machine.

    Whoever appends holds the device, so no two processes write at once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Choice]:
        """All choices by :func:`choice_key`; of equal keys the last one counts."""
        choices = {}
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                warnings.warn(f"{self.path}:{number}: a torn line is skipped", stacklevel=2)
                continue
            if record["schema"] == SCHEMA:
                choice = _choice_of(record)
                choices[choice_key(record["problem"], choice.device)] = choice
        return choices

    def append(self, problem: Problem, choice: Choice) -> None:
        """Add one choice, on a line of its own even after a torn one."""
        words = [f"0x{word:016x}" for word in choice.algorithm]
        record = {"schema": SCHEMA, "problem": problem.fields(), **asdict(choice)}
        text = json.dumps(record | {"algorithm": words}) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            if file.tell() > 0:
                file.seek(-1, 2)
                text = text if file.read(1) == b"\n" else "\n" + text
            file.write(text.encode())


def choice_key(problem: Mapping[str, int], device: Device) -> str:
    """Everything that a choice depends on, as canonical text."""
    return json.dumps({"problem": dict(problem), "device": asdict(device)}, sort_keys=True)


def _choice_of(record: Mapping[str, Any]) -> Choice:
    return Choice(
        Device(**record["device"]),
        tuple(int(word, 16) for word in record["algorithm"]),
        record["workspace_bytes"],
        record["time_sec"],
        record["first_time_sec"],
        record["measured"],
    )


def choose(
    problems: Iterable[Problem],
    arch: str,
    libraries: Iterable[LibraryNeed],
    flags: list[str],
    context: BuildContext,
) -> dict[Problem, Choice]:
    """The algorithms of the given products; empty where no GPU of that architecture is there.

    Parameters
    ----------
    arch : str
        For example ``sm_90a``.
    libraries : iterable of LibraryNeed
        cublasLt and the CUDA runtime.
    flags : list of str
        Compiler flags for the headers of these.

    Raises
    ------
    CodegenError
        When cublasLt has no algorithm for a product, or timing fails.
    """
    if not _gpu_is(arch):
        return {}
    log = AlgorithmLog(context.cache_dir / "cublas" / "algorithms.jsonl")
    tuner = tvm.runtime.load_module(str(tuner_library(libraries, flags, context)))
    device = _device(tuner)
    keys = {problem: choice_key(problem.fields(), device) for problem in problems}
    known = log.read()
    if not known.keys() >= set(keys.values()):
        with exclusive("cuda"):
            # Another process may have measured the same products meanwhile.
            known = log.read()
            for problem, key in keys.items():
                if key not in known:
                    known[key] = _measure(tuner, problem, device)
                    log.append(problem, known[key])
    return {problem: known[key] for problem, key in keys.items()}


def _gpu_is(arch: str) -> bool:
    if not has_device():
        return False
    number = "".join(filter(str.isdigit, arch))
    return str(tvm.cuda(0).compute_version).replace(".", "") == number


def tuner_library(
    libraries: Iterable[LibraryNeed], flags: list[str], context: BuildContext
) -> Path:
    """The library that times algorithms, compiled once per content."""
    depends = [*HEADERS, native.FFI_HEADER]
    compiled = native.compile_cached(TEMPLATES / "cublas_tuner.cc", context, flags, depends)
    output = compiled.with_suffix(".so")
    if not output.exists():
        paths = [need.path for need in libraries]
        with tempfile.TemporaryDirectory(dir=output.parent) as folder:
            made = Path(folder, output.name)
            rpaths = [f"-Wl,-rpath,{path.parent}" for path in paths]
            command = [context.cxx, "-shared", "-o", made, compiled, *paths, *rpaths]
            native.run_tool([str(part) for part in command])
            made.replace(output)
    return output


def _device(tuner: tvm.runtime.Module) -> Device:
    facts = tvm.runtime.tensor(np.zeros(4, np.int64))
    try:
        tuner["collage_cublas_facts"](facts)
    except RuntimeError as err:
        raise CodegenError(f"cannot ask the GPU what it is: {err}", value=str(err)) from err
    version, driver, capability, multiprocessors = (int(fact) for fact in facts.numpy())
    return Device(str(tvm.cuda(0).device_name), driver, version, capability, multiprocessors)


def _measure(tuner: tvm.runtime.Module, problem: Problem, device: Device) -> Choice:
    given = tvm.runtime.tensor(np.array(list(problem.fields().values()), np.int64))
    chosen = tvm.runtime.tensor(np.zeros(9, np.int64))
    times = tvm.runtime.tensor(np.zeros(3, np.float64))
    try:
        tuner["collage_cublas_measure"](given, CANDIDATES, chosen, times)
    except RuntimeError as err:
        raise CodegenError(
            f"cublas cannot choose an algorithm for {problem.describe()}: {err}", value=str(err)
        ) from err
    workspace_bytes, *words = (int(word) for word in chosen.numpy().view(np.uint64))
    time_sec, first_time_sec, measured = (float(value) for value in times.numpy())
    return Choice(device, tuple(words), workspace_bytes, time_sec, first_time_sec, int(measured))
