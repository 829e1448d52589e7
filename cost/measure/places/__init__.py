"""Several devices that time candidates at once.

A :class:`RunnerPool` hands out what is to be timed, :class:`Holding` keeps others from the devices
meanwhile, and :class:`Comparing` has them time a ``reference_set``, from which the ``calibration``
tells whose times do not compare.
"""

from collage.cost.measure.places.comparing import Comparing
from collage.cost.measure.places.holding import Holding
from collage.cost.measure.places.runner_pool import RunnerPool

__all__ = [
    "Comparing",
    "Holding",
    "RunnerPool",
]
