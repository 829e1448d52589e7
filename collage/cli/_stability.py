"""``collage stability``: whether searching a model again gives the same answer."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from collage.cli.terminal import (
    check_model,
    example,
    out,
    parse_shapes,
    print_json,
    progress_display,
    results_only,
)
from collage.cli.terminal.options import AllowCode, Debug, Json, Model, Shape, Targets

if TYPE_CHECKING:
    from rich.table import Table

    from collage.pipeline.studies.stability import Stability

_MEANING = {"tie": "a tie", "slower": "slower", "undecided": "not decided"}
"""Of a flip's outcome."""


def add_to(app: typer.Typer) -> None:
    app.command(
        "stability",
        epilog=example("collage stability resnet50.onnx -t llvm -t onednn --searches 5"),
    )(_stability)


def _stability(
    model: Model,
    target: Targets = None,
    searches: Annotated[int, typer.Option(min=2, help="How many.")] = 10,
    shape: Shape = None,
    time_budget: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="SECONDS", help="Of each search, as for 'optimize'."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Threads of every kernel; 0: all cores.")
    ] = None,
    allow_code: AllowCode = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Search a model several times from nothing, and compare the answers in one contest.

    Says which operators went to another backend, whether that made a difference, and by how much.
    """
    shapes = parse_shapes(shape or [])
    check_model(model)

    from collage.pipeline.studies.stability import stability
    from collage.targets import parse_targets

    targets = parse_targets(target)
    with results_only(), progress_display() as progress:
        found = stability(
            model,
            targets,
            searches,
            progress=progress,
            shapes=shapes or None,
            time_budget_sec=time_budget,
            num_threads=threads,
            allow_code=allow_code,
        )
    if json:
        comparisons = [
            {"outcome": one.outcome.value, "ratio": one.ratio and dataclasses.asdict(one.ratio)}
            for one in found.comparisons
        ]
        flips = [
            {**dataclasses.asdict(flip), "outcome": flip.outcome.value, "is_tie": flip.is_tie}
            for flip in found.flips
        ]
        print_json(
            {
                **dataclasses.asdict(found),
                "comparisons": comparisons,
                "flips": flips,
                "largest_regret": found.largest_regret,
                "spread": found.spread,
            }
        )
        return
    out().print(_answers(found))
    if found.flips:
        out().print(_flips(found))
    out().print(_verdict(found), highlight=False)


def _answers(found: Stability) -> Table:
    from rich.table import Table

    from collage.report import format_sec

    table = Table(box=None, pad_edge=False)
    for title in ("answer", "found by", "searches", "time", "beside the best"):
        table.add_column(title)
    for number, comparison in enumerate(found.comparisons):
        runs = [search for search in found.searches if search.answer == number]
        times = sorted(search.median_sec for search in runs)
        ratio = comparison.ratio
        beside = "the best" if comparison.is_chosen else comparison.outcome.value
        if ratio is not None:
            beside += f", {ratio.estimate:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
        table.add_row(
            str(number + 1),
            ", ".join(sorted({search.chosen for search in runs})),
            f"{len(runs)}",
            f"{format_sec(times[0])} to {format_sec(times[-1])}",
            beside,
        )
    return table


def _flips(found: Stability) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("operator", "", "backends", "what it makes"):
        table.add_column(title)
    for flip in found.flips:
        backends = ", ".join(f"{name} {count}" for name, count in flip.backends.items())
        place = f"{flip.function} {flip.node}".strip()
        table.add_row(place, flip.op, backends, _MEANING[flip.outcome.value])
    return table


def _verdict(found: Stability) -> str:
    costly, unknown = len(found.flips_outside_ties), len(found.flips_not_decided)
    return (
        f"{len(found.searches)} searches, {len(found.comparisons)} distinct answers; "
        f"{len(found.flips)} operators changed backend, {costly} of them outside ties, "
        f"{unknown} not decided; "
        f"largest regret {found.largest_regret:.1%}; reported times differ by {found.spread:.1%}"
    )
