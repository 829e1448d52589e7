"""The report of an optimization: what was found out, why, and how it looks.

:class:`Report` is plain data, saved as JSON in a bundle and read without TVM; :func:`explain` works
out of it, operator by operator, why this backend and not another. ``assemble`` makes a report of
what a search left behind, and ``rendering`` shows one: ``html`` and ``text`` on a page and in a
terminal, over ``views`` (rows and bars), ``figure`` and ``layout`` (the drawn graph).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collage._on_demand import on_demand
from collage.report.data import EndToEnd, Report, SearchStats
from collage.report.explain import AlternativeCover, NodeExplanation, WhyNot, explain
from collage.report.graph_rows import (
    Alternative,
    NodeInfo,
    PartitionInfo,
    RejectionInfo,
    shape_text,
)
from collage.report.memory import MemoryUse, size_text
from collage.report.workers import BuilderUse, WorkerUse, share_of

if TYPE_CHECKING:
    from collage.report.assemble import assemble_report
    from collage.report.rendering import (
        backend_colors,
        brief,
        explanation,
        notebook_frame,
        shares,
        summary,
        write_html,
    )
    from collage.report.units import format_sec, format_time

__all__ = [
    "Alternative",
    "AlternativeCover",
    "BuilderUse",
    "EndToEnd",
    "MemoryUse",
    "NodeExplanation",
    "NodeInfo",
    "PartitionInfo",
    "RejectionInfo",
    "Report",
    "SearchStats",
    "WhyNot",
    "WorkerUse",
    "assemble_report",
    "backend_colors",
    "brief",
    "explain",
    "explanation",
    "format_sec",
    "format_time",
    "notebook_frame",
    "shape_text",
    "share_of",
    "shares",
    "size_text",
    "summary",
    "write_html",
]

# On demand: reading a report takes neither TVM nor what draws it.
__getattr__, __dir__ = on_demand(
    __name__,
    {
        "assemble": ("assemble_report",),
        "rendering": (
            "backend_colors",
            "brief",
            "explanation",
            "notebook_frame",
            "shares",
            "summary",
            "write_html",
        ),
        "units": ("format_sec", "format_time"),
    },
)
