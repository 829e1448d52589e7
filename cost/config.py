"""How candidates are measured: repetitions, limits. All of it is part of the key."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from collage.cost.reference.compare import tolerance_key

_MIB = 1 << 20


@dataclass(frozen=True)
class CudaConfig:
    """What is different on CUDA devices; part of the key there, and only there.

    Attributes
    ----------
    repeat, min_repeat : int
        Samples of one call each, instead of those of :class:`MeasureConfig`.
    warmup_sec : float
        Calls and flushes before timing starts: a device that was idle has to raise its clocks.
    flush_factor : float
        Size of what is written before each sample, relative to the second-level cache.
    lead_sec : float
        How long that writing lasts at the least, which hides the launch of the call that is timed;
        longer where launching takes longer.
    lead_limit_sec : float
        How long at the most.
    build_timeout_sec, run_timeout_sec : float
        Instead of those of :class:`MeasureConfig`: nvcc takes its time, and so does loading
        libraries.

    Raises
    ------
    ValueError
        When the numbers make no sense together.

    Examples
    --------
    >>> CudaConfig(repeat=20).min_repeat
    10
    """

    repeat: int = 100
    min_repeat: int = 10
    warmup_sec: float = 0.02
    flush_factor: float = 2.0
    lead_sec: float = 2e-4
    lead_limit_sec: float = 0.02
    build_timeout_sec: float = 600.0
    run_timeout_sec: float = 60.0

    def __post_init__(self) -> None:
        if not 1 <= self.min_repeat <= self.repeat:
            raise ValueError("1 <= min_repeat <= repeat must hold")
        if self.flush_factor <= 0 or self.lead_sec <= 0:
            raise ValueError("flush_factor and lead_sec must be positive")


@dataclass(frozen=True)
class MeasureConfig:
    """Measuring configuration.

    Samples last ten milliseconds: shorter ones are disturbed by the scheduler's ticks. Four of them
    do on a quiet machine, a noisy one gets 0.15 s: what decides is timed again, beside its rivals.

    Attributes
    ----------
    repeat : int
        Samples at the most.
    min_repeat : int
        Samples after which measuring stops when the spread is below ``target_spread``.
    timing_budget_sec : float
        No further sample is taken after this time, once there are ``min_repeat``.
    min_repeat_sec : float
        Each sample is the mean over enough calls to take this long.
    warmup_sec : float
        Calls before timing starts, so that caches, thread pool and clock have settled.
    target_spread : float
        Half the distance of the 10th and 90th percentile, relative to the median, that is
        small enough.
    slow_call_sec : float
        A candidate whose single call takes longer is timed once: it will not be chosen.
    build_timeout_sec, run_timeout_sec : float
        Limits of wall time for one workload; checking is part of running.
    memory_limit_bytes : int
        Memory that building or running one workload may add to a worker.
    seed : int
        Of weights and inputs.
    cuda : CudaConfig
        What is different on CUDA devices.

    Raises
    ------
    ValueError
        When the numbers make no sense together.

    Examples
    --------
    >>> config = MeasureConfig(repeat=10, cuda=CudaConfig(repeat=20))
    >>> config.cuda.repeat, config.seed
    (20, 0)
    """

    repeat: int = 30
    min_repeat: int = 4
    timing_budget_sec: float = 0.15
    min_repeat_sec: float = 0.01
    warmup_sec: float = 0.01
    target_spread: float = 0.02
    slow_call_sec: float = 1.0
    build_timeout_sec: float = 60.0
    run_timeout_sec: float = 20.0
    memory_limit_bytes: int = 4096 * _MIB
    seed: int = 0
    cuda: CudaConfig = field(default_factory=CudaConfig)

    def __post_init__(self) -> None:
        if not 1 <= self.min_repeat <= self.repeat:
            raise ValueError("1 <= min_repeat <= repeat must hold")
        for name in ("min_repeat_sec", "build_timeout_sec", "run_timeout_sec"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive")

    def key(self, kind: str = "") -> dict[str, Any]:
        """Plain values of what counts on a kind of device: what has a section of its own here
        counts only there."""
        values = dataclasses.asdict(self)
        counts = {n: v for n, v in values.items() if n == kind or not isinstance(v, dict)}
        return {**counts, "tolerance": tolerance_key()}
