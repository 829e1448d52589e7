"""``collage precompile``: what a machine's first search would wait for."""

from __future__ import annotations

import time

import typer

from collage.cli.terminal import out, print_json, progress_display, results_only
from collage.cli.terminal.options import Debug, Json, Targets, example


def add_to(app: typer.Typer) -> None:
    app.command(
        "precompile",
        epilog=example(
            "collage precompile", "collage precompile -t cuda:arch=sm_90a -t cutlass -t cudnn"
        ),
    )(_precompile)


def _precompile(target: Targets = None, json: Json = False, debug: Debug = False) -> None:
    """Compile what libraries need whatever the model is, ahead of this machine's first search.

    It stays in the cache folder, for example of a container's image.
    """
    from collage.pipeline.precompile import precompile
    from collage.targets import parse_targets

    began = time.monotonic()
    with results_only(), progress_display() as progress:
        made = precompile(parse_targets(target), progress=progress)
    seconds = time.monotonic() - began
    if json:
        print_json({"compiled": [str(path) for path in made], "seconds": seconds})
    elif made:
        folder = made[0].parent
        out().print(f"{len(made)} objects in {seconds:.1f} s, in {folder}", markup=False)
    else:
        out().print("nothing to compile: it is all there", markup=False)
