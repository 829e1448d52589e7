"""Collage: measured partition search over many backends, on TVM Relax.

:func:`optimize` takes a model and the targets a machine has, and gives a :class:`Result`: the
fastest partitioned module, the report that says why, and :meth:`Result.export`, which writes a
bundle that :func:`load` reads on another machine. :mod:`collage.transform` has the same as a TVM
pass; :func:`register_backend` adds a target of one's own, and :func:`finalize` links what TVM's own
passes made with our backends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collage._on_demand import on_demand
from collage._version import __version__
from collage.backends.contract.context import set_default_context
from collage.config import Config, send_nothing, wait_briefly

if TYPE_CHECKING:
    from collage import transform
    from collage.backends.contract.registry import register_backend
    from collage.backends.link import finalize
    from collage.bundle import load
    from collage.pipeline.optimize import optimize
    from collage.pipeline.precompile import precompile
    from collage.pipeline.results.result import Result
    from collage.pipeline.studies.coverage import coverage

__all__ = [
    "Result",
    "__version__",
    "coverage",
    "finalize",
    "load",
    "optimize",
    "precompile",
    "register_backend",
    "transform",
]


# Only this package reads the environment: backends that Relax calls by itself are told here.
set_default_context(lambda: Config.from_environment().build_context())
# Before anything brings OpenMP's runtime: TVM imports PyTorch where that is installed.
wait_briefly()
send_nothing()

# On demand: the command line's help and every measuring worker import this package too, and need
# neither importers nor TVM.
__getattr__, __dir__ = on_demand(
    __name__,
    {
        "backends.contract.registry": ("register_backend",),
        "backends.link": ("finalize",),
        "bundle": ("load",),
        "pipeline.studies.coverage": ("coverage",),
        "pipeline.optimize": ("optimize",),
        "pipeline.precompile": ("precompile",),
        "pipeline.results.result": ("Result",),
        "transform": (),
    },
)
