"""The report as one HTML file that needs nothing beside it: no network, fonts or scripts."""

from __future__ import annotations

import functools
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from collage.backends.contract.errors import OutputError
from collage.report.data import Report
from collage.report.explain import Explainer
from collage.report.progress import how_far
from collage.report.rendering.figure import operator_figure, partition_figure
from collage.report.rendering.frontier import frontier_chart
from collage.report.rendering.palette import INLINE, backend_colors
from collage.report.rendering.views import (
    candidate_rows,
    end_to_end_bars,
    headline,
    partition_bars,
    refusals,
    shares,
)
from collage.report.units import format_sec, format_time
from collage.report.verdict import disturbances


def render_html(report: Report) -> str:
    """The report as an HTML document; every string that comes from the model is escaped."""
    colors = backend_colors(report.backend_labels())
    explainer = Explainer(report)
    explanations = explainer.nodes()
    nodes = {node.index: node for node in report.nodes}
    figures = [
        partition_figure(report, colors),
        operator_figure(report, colors, explanations),
    ]
    return _template().render(
        report=report,
        colors=colors,
        inline_color=INLINE,
        nodes=nodes,
        tiles=headline(report),
        end_to_end=end_to_end_bars(report, colors),
        frontier=frontier_chart(report),
        shares=shares(report, colors),
        partition_bars=partition_bars(report, colors),
        figures=[figure for figure in figures if figure is not None],
        explanations=explanations,
        candidates=candidate_rows(report, explainer),
        refusals=refusals(report),
        format_sec=format_sec,
        how_far=how_far(report.search),
        disturbances=disturbances(report.end_to_end),
        format_time=format_time,
        title=_title(report),
        others=[(other.function, render_html(other)) for other in report.others],
    )


@functools.cache
def _template() -> Template:
    """Compiled once a process: that takes longer than what is written with it."""
    environment = Environment(
        loader=PackageLoader("collage.report.rendering"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")


def _title(report: Report) -> str:
    one_of_several = report.others or report.function != "main"
    return f"{report.model}, {report.function}" if one_of_several else report.model


def write_html(report: Report, path: Path) -> None:
    """Write :func:`render_html` to ``path``.

    Parameters
    ----------
    report : Report
        What is shown.
    path : Path
        Replaced if it exists.

    Raises
    ------
    OutputError
        When the file cannot be written.

    Examples
    --------
    >>> report = Report("net", "", device={}, versions={}, targets=[], nodes=[], partitions=[])
    >>> write_html(report, Path("report.html"))
    >>> Path("report.html").read_text(encoding="utf-8").splitlines()[0]
    '<!DOCTYPE html>'
    """
    text = render_html(report)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as err:
        raise OutputError(f"cannot write the report '{path}': {err.strerror}", value=path) from err
