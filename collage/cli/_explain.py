"""``collage explain``: why this backend and not that one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collage.backends.contract.errors import BundleError
from collage.backends.storage.log_url import is_database_url
from collage.cli.terminal import out
from collage.cli.terminal.options import Debug, example


def add_to(app: typer.Typer) -> None:
    app.command(
        "explain",
        epilog=example("collage explain resnet50.bundle", "collage explain resnet50.jsonl"),
    )(_explain)


def _explain(
    source: Annotated[
        str, typer.Argument(metavar="BUNDLE|LOG", help="A bundle, or a log: a file or a URL.")
    ],
    debug: Debug = False,
) -> None:
    """Per operator of a bundle: chosen backend, runner-up, both costs, and why not the others.

    Of a log: the backends' costs for each workload, cheapest first.
    """
    bundle = Path(source)
    if is_database_url(source) or bundle.is_file():
        from collage.cli._log import ranking

        out().print(ranking(source))
        return
    if not bundle.is_dir():
        raise BundleError(f"there is no bundle or log '{source}'", value=source)

    from collage.bundle import read_report
    from collage.report import explanation, summary

    report = read_report(bundle)
    out().print(summary(report))
    for function in (report, *report.others):
        out().print(explanation(function))
