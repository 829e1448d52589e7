"""``collage bench``: how long a bundle takes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from collage.backends.contract.errors import InputError
from collage.cli._profile import show_profile
from collage.cli.terminal import out, print_json
from collage.cli.terminal.options import BundleFolder, Debug, Json, example


def add_to(app: typer.Typer) -> None:
    app.command(
        "bench",
        epilog=example(
            "collage bench resnet50.bundle --repeat 100",
            "collage bench resnet50.bundle --profile --trace trace.json",
        ),
    )(_bench)


def _bench(
    bundle: BundleFolder,
    repeat: Annotated[int, typer.Option(min=1, help="Timed calls.")] = 50,
    warmup: Annotated[int, typer.Option(min=0, help="Calls before those.")] = 5,
    profile: Annotated[
        bool, typer.Option("--profile", help="Time each kernel inside the running model.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json", help="With --profile: for chrome://tracing and Perfetto."
        ),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Time calls of a bundle on random inputs: median, spread and number of calls.

    The spread is half the distance between the 10th and the 90th percentile.
    """
    import numpy as np

    from collage.bundle import load
    from collage.report import format_sec, format_time

    if trace is not None and not profile:
        raise InputError("--trace draws a profile: give --profile too", value=str(trace))
    loaded = load(bundle)
    if profile:
        show_profile(loaded, repeat, warmup, trace, json=json)
        return
    samples_sec = loaded.benchmark(repeat=repeat, warmup=warmup)
    low, median, high = (float(q) for q in np.percentile(samples_sec, (10, 50, 90)))
    result = {
        "bundle": str(bundle),
        "model": loaded.manifest.model,
        "median_sec": median,
        "spread_sec": (high - low) / 2,
        "mean_sec": math.fsum(samples_sec) / len(samples_sec),
        "min_sec": min(samples_sec),
        "max_sec": max(samples_sec),
        "n": len(samples_sec),
        "num_threads": loaded.manifest.num_threads,
        "samples_sec": list(samples_sec),
    }
    if json:
        print_json(result)
        return
    out().print(
        f"median {format_time(median, (high - low) / 2)} (n = {len(samples_sec)}, "
        f"fastest {format_sec(min(samples_sec))}, slowest {format_sec(max(samples_sec))})",
        highlight=False,
    )
