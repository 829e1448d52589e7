"""Who says what candidates cost, and how whole models are compared: by measuring or by estimating.

The choice is made once, by :func:`choose_costing`; the other stages ask a :class:`Costing`.
"""

from collage.pipeline.costing._base import Costing
from collage.pipeline.costing.choose import choose_costing
from collage.pipeline.costing.estimated import EstimatedCosting
from collage.pipeline.costing.measured import MeasuredCosting

__all__ = ["Costing", "EstimatedCosting", "MeasuredCosting", "choose_costing"]
