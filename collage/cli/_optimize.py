"""``collage optimize``: a model file in, a bundle out."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collage._tvm_alone import import_tvm
from collage.backends.contract.errors import LogError
from collage.cli._answer import as_json, print_answer
from collage.cli.terminal import (
    Interrupted,
    check_log,
    check_model,
    example,
    parse_bytes,
    parse_shapes,
    parse_wishes,
    print_json,
    progress_display,
    read_sample,
    results_only,
)
from collage.cli.terminal.options import AllowCode, Debug, Json, Model, Shape, Targets

if TYPE_CHECKING:
    pass


def add_to(app: typer.Typer) -> None:
    app.command(
        "optimize",
        epilog=example(
            "collage optimize resnet50.onnx -t llvm -t onednn -t openblas "
            "--log resnet50.jsonl -o resnet50.bundle",
            "collage optimize bert.onnx -t onednn:layout=plain --shape ids=1,128 -o bert.bundle",
            "collage optimize vit.onnx -t cuda:arch=sm_90a -t cublas --estimate -o vit.bundle",
        ),
    )(_optimize)


def _optimize(
    context: typer.Context,
    model: Model,
    target: Targets = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="BUNDLE",
            help="Folder of the bundle; by default beside the model, as MODEL's name with .bundle.",
        ),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="Measurements and what backends tuned: read first, then appended to. A file, or "
            "a team's database: sqlite:///team.db, postgresql+psycopg://host/collage.",
        ),
    ] = None,
    shape: Shape = None,
    most_buckets: Annotated[
        int,
        typer.Option(
            min=2,
            help="Buckets that are chosen where --shape says how often each extent comes.",
        ),
    ] = 4,
    input: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="SAMPLE.npz",
            help="Inputs to compare and time on, arrays by name; repeatable. "
            "Without, inputs are drawn.",
        ),
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Measure nothing: what the log lacks is an error.")
    ] = False,
    time_budget: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="Of everything, until the bundle is written; the answer is the best by then.",
        ),
    ] = None,
    single_backend: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="No search: this backend where it can, TVM elsewhere."),
    ] = None,
    covers: Annotated[
        int, typer.Option(min=1, metavar="K", help="Time the best K of the search's covers whole.")
    ] = 1,
    pin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN=BACKEND",
            help="Only this backend may run what the pattern matches, an operator's type or a "
            "node's name: --pin 'backbone.*=onednn'; repeatable.",
        ),
    ] = None,
    ban: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN=BACKEND",
            help="This backend may not: --ban nn.softmax=onednn; repeatable.",
        ),
    ] = None,
    layouts: Annotated[
        str | None, typer.Option(help="To choose from between partitions: plain,channels_last.")
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="The most that weights, their copies, activations and workspace may take: a "
            "number, or with K, M or G behind it, of 1024.",
        ),
    ] = None,
    max_error: Annotated[
        float | None,
        typer.Option(
            metavar="ERROR",
            help="The largest error of an output, relative to its largest value, for example 0.01: "
            "libraries may compute with fewer digits within it.",
        ),
    ] = None,
    precision: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Of the precisions that --max-error allows only this: int8, bfloat16, float16, "
            "tf32; repeatable.",
        ),
    ] = None,
    calibration: Annotated[
        str,
        typer.Option(
            metavar="METHOD",
            help="How the samples' values give int8 its steps: minmax, percentile or entropy; auto "
            "takes the one with the least error.",
        ),
    ] = "auto",
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What --max-error is the largest allowed value of: top1, the share of classes "
            "that differ on the samples.",
        ),
    ] = None,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate",
            help="Estimate costs from a data sheet: for a GPU that is not here, or a nominal CPU. "
            "Kernels are those tuned for it, where the log or the cache has any.",
        ),
    ] = False,
    refine: Annotated[
        int, typer.Option(min=0, metavar="TRIALS", help="Refine on end-to-end time afterwards.")
    ] = 0,
    refine_storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL|FILE",
            help="Keeps the refinement's trials, e.g. sqlite:///r.db, for several processes.",
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Threads of every kernel; 0: all cores.")
    ] = None,
    ieee_denormals: Annotated[
        bool,
        typer.Option("--ieee-denormals", help="On a CPU, compute with denormals: do not flush."),
    ] = False,
    weights: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="Where the bundle has its weights: inside of model.so, beside it in files that "
            "are mapped, or auto: beside from 128 MiB on (on a GPU 1 GiB).",
        ),
    ] = "auto",
    workers: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Who compiles and times candidates: local, ray://head:10001, "
            "rpc://tracker:9190?key=h100. See 'collage workers'.",
        ),
    ] = "local",
    with_runtime: Annotated[
        bool,
        typer.Option(
            "--with-runtime", help="Copy TVM's runtime into the bundle: to run it without Python."
        ),
    ] = False,
    with_libraries: Annotated[
        bool,
        typer.Option(
            "--with-libraries",
            help="Copy the libraries of CUDA that it needs into the bundle, up to 1.4 GB.",
        ),
    ] = False,
    allow_code: AllowCode = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Find the fastest partitioning of a model by measurement, and write it as a bundle.

    Ctrl-C once ends the search with the best answer so far, twice without one.
    """
    shapes = parse_shapes(shape or [])
    pins, bans = parse_wishes("--pin", pin or []), parse_wishes("--ban", ban or [])
    limit_bytes = None if memory_limit is None else parse_bytes("--memory-limit", memory_limit)
    check_model(model)
    if replay and log is None:
        raise LogError("--replay needs --log FILE or URL", value=None)
    if estimate and replay:
        raise LogError(
            "--estimate measures nothing but takes costs from a data sheet, --replay takes them "
            "from the log: leave one of them out",
            value=None,
        )
    if estimate and time_budget is not None:
        raise LogError("--estimate measures nothing: leave out --time-budget", value=time_budget)
    name = None if log is None else check_log(log, must_exist=replay)
    samples = [read_sample(path) for path in input] if input else None

    import_tvm()
    from collage.bundle import prepare_folder

    output = output or model.with_suffix(".bundle")
    existed = output.exists()
    # An hour of measuring must not end at a folder that cannot be written.
    prepare_folder(output)

    from collage.cost.models.roofline import RooflineCostModel
    from collage.pipeline.optimize import optimize as search
    from collage.targets import parse_targets

    try:
        targets = parse_targets(target)
        with results_only(), progress_display() as progress:
            result = search(
                model,
                targets,
                shapes=shapes or None,
                most_buckets=most_buckets,
                log=log,
                replay=replay,
                time_budget_sec=_left(time_budget, context.obj),
                strategy=f"single:{single_backend}" if single_backend else "search",
                covers=covers,
                pin=pins,
                ban=bans,
                layouts=layouts.split(",") if layouts else None,
                memory_limit_bytes=limit_bytes,
                max_error=max_error,
                precision=precision,
                calibration=calibration,
                metric=metric,
                refine_trials=refine,
                refine_storage=refine_storage,
                num_threads=threads,
                ieee_denormals=ieee_denormals,
                weights=weights,
                inputs=samples,
                allow_code=allow_code,
                cost_model=RooflineCostModel() if estimate else None,
                workers=workers,
                progress=progress,
            )
            folder = result.export(output, with_runtime=with_runtime, with_libraries=with_libraries)
    except KeyboardInterrupt as error:
        raise Interrupted(f"interrupted; {_kept(name)}") from error
    finally:
        # What failed leaves no empty folder behind.
        if not existed and output.is_dir() and not any(output.iterdir()):
            output.rmdir()
    if result.report.search.interrupted:
        line = f"interrupted: this is the best answer so far; {_kept(name)}"
        print(line, file=sys.stderr, flush=True)
    if json:
        print_json(as_json(result.report, folder, name))
    else:
        print_answer(result.report, folder, name)


def _kept(log: str | None) -> str:
    return f"measurements so far are in {log}" if log else "nothing was kept without --log"


def _left(budget_sec: float | None, begin: float) -> float | None:
    """What is left of a budget that ran from ``begin`` on."""
    return None if budget_sec is None else max(0.0, budget_sec - (time.monotonic() - begin))
