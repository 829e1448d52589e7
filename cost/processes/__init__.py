"""Processes that measure for a search: how they are started, asked, and ended.

The parent's side is :class:`WorkerProcess` (one, contained whatever it does) and
:class:`WorkerPool` (several, that share out requests). What crosses are the types of
:mod:`collage.cost.processes.messages`, written and read by :mod:`collage.cost.processes.protocol`,
and files (:mod:`collage.cost.processes.staging`); the child's side is :mod:`collage.cost.worker`,
which nobody else imports.
"""

from __future__ import annotations

from collage.cost.processes.failure import WorkerFailure
from collage.cost.processes.worker_pool import WorkerPool
from collage.cost.processes.worker_process import WorkerProcess

__all__ = ["WorkerFailure", "WorkerPool", "WorkerProcess"]
