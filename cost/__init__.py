"""What a candidate costs: measured, from a log, from a table, or by a model.

A :class:`CostModel` says what workloads cost on targets. :class:`MeasuredCostModel` looks them up
in a :class:`Database` and measures what is missing: :mod:`~collage.cost.measure` builds and times
in the worker processes of :mod:`~collage.cost.processes`, which run :mod:`~collage.cost.worker`.
What is measured is a :class:`Workload`; what differs between kinds of devices is
:mod:`~collage.cost.device`; what is right is :mod:`~collage.cost.reference`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collage._on_demand import on_demand

if TYPE_CHECKING:
    from collage.cost.base import Cost, CostModel, CostStatus, Overheads
    from collage.cost.config import CudaConfig, MeasureConfig
    from collage.cost.database import Database
    from collage.cost.deadline import Deadline
    from collage.cost.models import MeasuredCostModel, RooflineCostModel, TableCostModel
    from collage.cost.workload import Workload

__all__ = [
    "Cost",
    "CostModel",
    "CostStatus",
    "CudaConfig",
    "Database",
    "Deadline",
    "MeasureConfig",
    "MeasuredCostModel",
    "Overheads",
    "RooflineCostModel",
    "TableCostModel",
    "Workload",
]

# On demand: worker processes import this package too, and need none of the search's side.
__getattr__, __dir__ = on_demand(
    __name__,
    {
        "base": ("Cost", "CostModel", "CostStatus", "Overheads"),
        "config": ("CudaConfig", "MeasureConfig"),
        "database": ("Database",),
        "deadline": ("Deadline",),
        "models": ("MeasuredCostModel", "RooflineCostModel", "TableCostModel"),
        "workload": ("Workload",),
    },
)
