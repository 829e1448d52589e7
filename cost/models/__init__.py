"""The cost models: each says what workloads cost, none knows of a search.

:class:`MeasuredCostModel` measures what the log does not know, :class:`RooflineCostModel` estimates
from a data sheet (:class:`DeviceSpec`), :class:`TableCostModel` has fixed answers. What the virtual
machine adds to every call and partition is measured by ``overheads``.
"""

from collage.cost.models.measured import MeasuredCostModel
from collage.cost.models.roofline import DeviceSpec, RooflineCostModel
from collage.cost.models.table import TableCostModel

__all__ = ["DeviceSpec", "MeasuredCostModel", "RooflineCostModel", "TableCostModel"]
