"""Measuring, one role a file; the roles and their names are MetaSchedule's.

``scheduler`` orchestrates, a ``batch`` at a time: :class:`RecordLookup` (``replay``) says what the
log lacks, :class:`Builder` compiles that in worker processes while ``tuning`` lets backends choose
kernels, a :class:`Runner` (on this machine a :class:`LocalRunner`) checks and times each, and the
``recorder`` has every result in the log at once. ``model_builder`` and ``end_to_end`` do the same
for whole models, which are timed against each other. What differs between kinds of devices is asked
of a :class:`~collage.cost.device.DevicePolicy`.
"""

from collage.cost.measure.builder import Builder, BuildJob, BuildResult
from collage.cost.measure.end_to_end import EndToEndQuestion, EndToEndTimer, WholeModel
from collage.cost.measure.local_runner import LocalRunner
from collage.cost.measure.model_builder import ModelJob, ModelResult
from collage.cost.measure.replay import MeasureStats, RecordLookup
from collage.cost.measure.runner import RunJob, Runner, RunResult
from collage.cost.measure.scheduler import Measurer

__all__ = [
    "BuildJob",
    "BuildResult",
    "Builder",
    "EndToEndQuestion",
    "EndToEndTimer",
    "LocalRunner",
    "MeasureStats",
    "Measurer",
    "ModelJob",
    "ModelResult",
    "RecordLookup",
    "RunJob",
    "RunResult",
    "Runner",
    "WholeModel",
]
