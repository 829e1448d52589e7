"""Runners: check a library and time it, contained."""

from collage.cost.runner._base import Alone, RunJob, Runner, RunResult
from collage.cost.runner.local import LocalRunner

__all__ = ["Alone", "LocalRunner", "RunJob", "RunResult", "Runner"]
