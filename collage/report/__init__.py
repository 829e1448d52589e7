"""The report of an optimization: what was found out, why, and how it looks.

:class:`Report` is plain data, saved as JSON in a bundle and read without TVM; :func:`explain` works
out of it, operator by operator, why this backend and not another. ``assemble`` makes a report of
what a search left behind; ``html`` and ``text`` show one on a page and in a terminal, over
``views`` (rows and bars), ``figure`` and ``layout`` (the drawn graph), ``units`` and ``palette``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collage._on_demand import on_demand
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
from collage.report.memory import MemoryUse, size_text
from collage.report.workers import BuilderUse, WorkerUse, share_of

if TYPE_CHECKING:
    from collage.report.assemble import assemble_report
    from collage.report.html import write_html
    from collage.report.in_brief import brief, notebook_frame
    from collage.report.palette import backend_colors
    from collage.report.text import explanation, summary
    from collage.report.units import format_sec, format_time
    from collage.report.views import shares

__all__ = [
    "Alternative",
    "BuilderUse",
    "EndToEnd",
    "MemoryUse",
    "NodeExplanation",
    "NodeInfo",
    "PartitionInfo",
    "RejectionInfo",
    "Report",
    "SearchStats",
    "Way",
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
        "in_brief": ("brief", "notebook_frame"),
        "html": ("write_html",),
        "palette": ("backend_colors",),
        "text": ("explanation", "summary"),
        "units": ("format_sec", "format_time"),
        "views": ("shares",),
    },
)
