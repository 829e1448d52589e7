"""``collage coverage``: what each backend takes of a model, before anything is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from collage.cli.terminal import (
    check_model,
    example,
    out,
    parse_shapes,
    print_json,
    results_only,
)
from collage.cli.terminal.options import AllowCode, Debug, Json, Model, Shape, Targets

if TYPE_CHECKING:
    from rich.table import Table

    from collage.pipeline.studies.coverage import BackendCoverage, Coverage, OperatorGroup

_NAMES_SHOWN = 3


def add_to(app: typer.Typer) -> None:
    app.command(
        "coverage",
        epilog=example(
            "collage coverage resnet50.onnx -t onednn -t openblas",
            "collage coverage vit.onnx -t cuda:arch=sm_90a -t cudnn --json",
        ),
    )(_coverage)


def _coverage(
    model: Model,
    target: Targets = None,
    shape: Shape = None,
    allow_code: AllowCode = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """What each backend takes of a model, and what it refuses and why; nothing is built.

    An operator is taken where a pattern of the backend matches, alone or with others.
    """
    shapes = parse_shapes(shape or [])
    check_model(model)

    from collage.pipeline.studies.coverage import coverage
    from collage.targets import parse_targets

    with results_only():
        found = coverage(
            model,
            parse_targets(target),
            shapes=shapes or None,
            allow_code=allow_code,
        )
    if json:
        print_json(found.as_dict())
        return
    console = out()
    console.print(f"{found.model}: {found.operators} operators, {_giga(found.flops)}", markup=False)
    console.print(_summary(found))
    for backend in found.backends:
        if backend.refused:
            console.print(f"{backend.backend} refuses", style="bold", markup=False)
            console.print(_refused(backend, found))


def _summary(found: Coverage) -> Table:
    table = _table("backend", "operators", "of all", "of the operations", "takes")
    for backend in found.backends:
        table.add_row(
            backend.backend,
            str(backend.operators),
            f"{backend.operators / found.operators:.0%}" if found.operators else "",
            "" if backend.flops_share is None else f"{backend.flops_share:.1%}",
            ", ".join(_counted(backend.taken)),
        )
    return table


def _refused(backend: BackendCoverage, found: Coverage) -> Table:
    table = _table("operator", "count", "of the operations", "why", "where")
    for group in backend.refused:
        shown = ", ".join(group.names[:_NAMES_SHOWN])
        more = len(group.names) - _NAMES_SHOWN
        table.add_row(
            group.op,
            str(group.count),
            f"{group.flops / found.flops:.1%}" if found.flops else "",
            "\n".join(group.reasons),
            shown if more <= 0 else f"{shown} and {more} more",
        )
    return table


def _counted(groups: tuple[OperatorGroup, ...]) -> list[str]:
    counts: dict[str, int] = {}
    for group in groups:
        counts[group.op] = counts.get(group.op, 0) + group.count
    return [f"{count} {op}" for op, count in counts.items()]


def _giga(flops: int) -> str:
    return f"{flops / 1e9:.3g} G operations a call"


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
