"""How a report looks: on a page, in a terminal, in a notebook, and as drawings.

:func:`write_html` makes the page, :func:`notebook_frame` the same page for a notebook's cell;
:func:`summary` and :func:`explanation` are for a terminal, :func:`brief` for a log. All are drawn
over ``views``, rows and bars, of which :func:`shares` is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collage._on_demand import on_demand

if TYPE_CHECKING:
    from collage.report.rendering.frontier import frontier_chart
    from collage.report.rendering.html import write_html
    from collage.report.rendering.in_brief import brief, notebook_frame
    from collage.report.rendering.palette import backend_colors
    from collage.report.rendering.text import explanation, summary
    from collage.report.rendering.views import shares

__all__ = [
    "backend_colors",
    "brief",
    "explanation",
    "frontier_chart",
    "notebook_frame",
    "shares",
    "summary",
    "write_html",
]

# On demand: a terminal's text takes nothing that draws a page.
__getattr__, __dir__ = on_demand(
    __name__,
    {
        "frontier": ("frontier_chart",),
        "html": ("write_html",),
        "in_brief": ("brief", "notebook_frame"),
        "palette": ("backend_colors",),
        "text": ("explanation", "summary"),
        "views": ("shares",),
    },
)
