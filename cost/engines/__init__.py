"""Engines, one a file: who compiles candidates, and who times them on which devices.

:class:`LocalEngine` is this machine; :class:`ExecutorEngine` has candidates compiled by whatever is
a :class:`concurrent.futures.Executor`. A new one is a file here that holds to the contract in
:mod:`collage.cost.measure.engine`, for which :class:`collage.testing.EngineContract` is a suite.
Users name engines as :mod:`~collage.cost.engines.named` says, where each has a line; one from
outside has an entry point instead.
"""

from collage.cost.engines.executor import ExecutorEngine
from collage.cost.engines.local import LocalEngine
from collage.cost.engines.named import LOCAL, WorkersLike, WorkersUrl, engine_names, engine_of

__all__ = [
    "LOCAL",
    "ExecutorEngine",
    "LocalEngine",
    "WorkersLike",
    "WorkersUrl",
    "engine_names",
    "engine_of",
]
