"""Attributes of the target ``tvm``."""

from __future__ import annotations

from dataclasses import dataclass

SCHEDULES = ("default", "dlight", "metaschedule", "none", "plain")


@dataclass(frozen=True)
class TVMOptions:
    """How TVM's own kernels are made.

    Attributes
    ----------
    schedule : str
        ``default``: this project's schedules by kind of kernel (on a GPU with DLight's rules behind
        them). ``dlight``: DLight's rules alone, on a GPU. ``metaschedule``: each distinct kernel is
        tuned by measuring on this machine's device, which takes minutes; results are kept and
        shared by every later compilation. ``none``: TVM's plain loops, which is what a comparison
        with an unscheduled TVM wants (on a GPU, merely bound to threads).
    tuning_trials : int
        Candidates measured per distinct kernel under ``metaschedule``.

    Raises
    ------
    ValueError
        When there is no such schedule, or not a single trial.
    """

    schedule: str = "default"
    tuning_trials: int = 64

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise ValueError(
                f"attribute 'schedule' must be one of {', '.join(SCHEDULES)}, not '{self.schedule}'"
            )
        if self.tuning_trials < 1:
            raise ValueError(
                f"attribute 'tuning_trials' must be positive, not {self.tuning_trials}"
            )
