"""Measuring, one role a file; the roles and their names are MetaSchedule's.

``scheduler`` orchestrates, a ``batch`` at a time: :class:`RecordLookup` (``replay``) says what the
log lacks, a :class:`Builder` compiles that while ``tuning`` lets backends choose kernels, a
:class:`Runner` at each place of the ``runner_pool`` checks and times, and the ``recorder`` has
every result in the log at once. Where there are several places, ``comparing`` has them time a
``reference_set`` and leaves out whom the ``calibration`` finds to differ. Who these are is an
``engine``'s to say; the local ones work in child processes of this machine. ``model_builder``
and ``end_to_end`` do the same for whole models, which are timed against each other. What differs
between kinds of devices is asked of a :class:`~collage.cost.device.DevicePolicy`.
"""

from collage.cost.measure.builder import Builder, BuildJob, BuildResult
from collage.cost.measure.engine import WorkerInfo
from collage.cost.measure.local_builder import LocalBuilder
from collage.cost.measure.local_runner import LocalRunner
from collage.cost.measure.replay import MeasureStats, RecordLookup
from collage.cost.measure.runner import PlaceLostError, RunJob, Runner, RunResult
from collage.cost.measure.scheduler import Measurer
from collage.cost.measure.whole_models import (
    EndToEndQuestion,
    EndToEndTimer,
    ModelJob,
    ModelResult,
    WholeModel,
)

__all__ = [
    "BuildJob",
    "BuildResult",
    "Builder",
    "EndToEndQuestion",
    "EndToEndTimer",
    "LocalBuilder",
    "LocalRunner",
    "MeasureStats",
    "Measurer",
    "ModelJob",
    "ModelResult",
    "PlaceLostError",
    "RecordLookup",
    "RunJob",
    "RunResult",
    "Runner",
    "WholeModel",
    "WorkerInfo",
]
