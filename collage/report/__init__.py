"""The report of an optimization: what was found out, why, and how it looks.

:class:`Report` is plain data, saved as JSON in a bundle and read without TVM; :func:`explain` works
out of it, operator by operator, why this backend and not another. ``assemble`` makes a report of
what a search left behind; ``html`` and ``text`` show one on a page and in a terminal, over
``views`` (rows and bars), ``figure`` and ``layout`` (the drawn graph), ``units`` and ``palette``.
"""

from collage.report.data import (
    Alternative,
    EndToEnd,
    NodeInfo,
    PartitionInfo,
    RejectionInfo,
    Report,
    SearchStats,
    shape_text,
)
from collage.report.explain import NodeExplanation, Way, WhyNot, explain

__all__ = [
    "Alternative",
    "EndToEnd",
    "NodeExplanation",
    "NodeInfo",
    "PartitionInfo",
    "RejectionInfo",
    "Report",
    "SearchStats",
    "Way",
    "WhyNot",
    "explain",
    "shape_text",
]
