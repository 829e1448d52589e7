"""Engines, one a file: who compiles candidates, and who times them on which devices.

:class:`LocalEngine` is this machine. A new one is a file here that holds to the contract in
:mod:`collage.cost.measure.engine`, for which :class:`collage.testing.EngineContract` is a suite.
"""

from collage.cost.engines.local import LocalEngine

__all__ = ["LocalEngine"]
