"""The algorithms chosen for products, and the file that remembers them.

Each distinct product is timed once per machine: ``<cache_dir>/cublas/algorithms.jsonl`` holds what
:mod:`~collage.backends.cublas.tuner` found, by everything that the choice depends on.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collage.backends.cublas.problem import Problem

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
