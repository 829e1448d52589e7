"""Attributes of the target ``tvm``."""

from __future__ import annotations

from dataclasses import dataclass

SCHEDULES = ("default", "none")


@dataclass(frozen=True)
class TVMOptions:
    """How TVM's own kernels are made.

    Attributes
    ----------
    schedule : str
        ``default``: parallel and vectorized schedules by kind of kernel; ``none``: TVM's plain
        loops, which is what a comparison with an unscheduled TVM wants.
    """

    schedule: str = "default"

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise ValueError(
                f"attribute 'schedule' must be one of {', '.join(SCHEDULES)}, not '{self.schedule}'"
            )
