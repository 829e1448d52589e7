"""The algorithms chosen for products, as the tuning log remembers them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from collage.backends.cublas.problem import Problem
from collage.backends.storage.tuning_store import TuningStore

SCHEMA = 1
"""Of this backend's records in the tuning log."""


@dataclass(frozen=True)
class Device:
    """What a choice depends on besides the product and cublasLt.

    Attributes
    ----------
    name : str
        For example ``NVIDIA H200``.
    driver : int
        CUDA's driver version, ``1000 * major + 10 * minor``.
    compute_capability : int
        For example 90.
    multiprocessors : int
    """

    name: str
    driver: int
    compute_capability: int
    multiprocessors: int


@dataclass(frozen=True)
class Choice:
    """An algorithm for a product, and where it holds.

    Attributes
    ----------
    device : Device
        What it was timed on.
    version : int
        cublasLt's version, as ``cublasLtGetVersion`` has it.
    algorithm : tuple of int
        The eight 64-bit words of ``cublasLtMatmulAlgo_t``.
    time_sec, first_time_sec : float
        Of one launch: this algorithm's, and that of cublasLt's first guess.
    measured : int
        How many algorithms were timed.
    """

    device: Device
    version: int
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


def choice_key(problem: Problem, version: int) -> dict[str, Any]:
    """What a choice answers, as the log has it; ``version`` is cublasLt's."""
    return {"problem": problem.fields(), "cublasLt": version}


def find_choice(
    log: TuningStore, problem: Problem, version: int, device: Mapping[str, Any]
) -> Choice | None:
    """What is remembered for a product.

    Parameters
    ----------
    version : int
        cublasLt's.
    device : mapping
        The facts known of the device; fields of :class:`Device`.
    """
    found = log.find(choice_key(problem, version), device)
    if found is None:
        return None
    words = tuple(int(word, 16) for word in found.result["algorithm"])
    return Choice(
        device=Device(**found.device), version=version, **{**found.result, "algorithm": words}
    )


def keep_choice(log: TuningStore, problem: Problem, choice: Choice) -> None:
    """Remember a choice."""
    result = {
        # As text: JSON readers that know doubles only would round them.
        "algorithm": [f"0x{word:016x}" for word in choice.algorithm],
        "workspace_bytes": choice.workspace_bytes,
        "time_sec": choice.time_sec,
        "first_time_sec": choice.first_time_sec,
        "measured": choice.measured,
    }
    log.append(choice_key(problem, choice.version), asdict(choice.device), result)
