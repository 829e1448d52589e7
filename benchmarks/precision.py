"""Time against error: a search's answers within an error, beside onnxruntime's int8 and OpenVINO.

``python -m benchmarks.precision NETWORK`` prints a row for each engine and for each partitioning
that the search compared; with ``--results`` it adds them to ``benchmarks/results/precision.json``
and writes the page and its picture anew. Weights are random, samples are drawn; four of them
calibrate all that is quantized, errors are the largest over four that nobody has seen, relative to
the largest value of the output in float32 (onnxruntime's). All run in one process and in turns, so
that what disturbs one disturbs all; with ``--threads 1`` the process's own time counts, which
another program's load does not lengthen.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import onnx.version_converter
import typer

import collage
from benchmarks.networks.exported import mobilenet_v2
from benchmarks.networks.models import before_softmax, light_model, random_inputs
from benchmarks.networks.tiny import tiny_bert
from benchmarks.timing.machine import commit, machine, now
from collage.backends.devices.cpu_flags import sums_bytes_in_32_bits

Array = np.ndarray
Feeds = Mapping[str, Array]
Call = Callable[[Feeds], Array]
Row = dict[str, Any]

NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "squeezenet": lambda: before_softmax(light_model("squeezenet")),
    "resnet50": lambda: before_softmax(light_model("resnet50")),
    "shufflenet": lambda: before_softmax(light_model("shufflenet")),
    "mobilenet_v2": mobilenet_v2,
    "transformer": lambda: tiny_bert(tokens=64, width=256, heads=4, layers=4),
}
TARGETS = ("llvm", "onednn", "openvino", "onnxruntime")
ROUNDS, CALLS = 21, 3
RESULTS = Path(__file__).parent / "results" / "precision.md"
FLOAT32 = "OpenVINO, float32"

_DRAWN = 1e-7
"""What is drawn of smaller errors."""


class _Samples:
    """What onnxruntime calibrates by: the same as everybody."""

    def __init__(self, samples: Sequence[Feeds]) -> None:
        self._samples: Iterator[Feeds] = iter(samples)

    def get_next(self) -> Feeds | None:
        return next(self._samples, None)


def _quantized(model: onnx.ModelProto, samples: Sequence[Feeds], folder: Path) -> Path:
    """The model as onnxruntime quantizes it: per channel, 7 bits for weights without VNNI."""
    from onnxruntime.quantization import CalibrationDataReader, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(_Samples, CalibrationDataReader):
        pass

    plain, ready, made = (folder / f"{name}.onnx" for name in ("plain", "ready", "int8"))
    if max(opset.version for opset in model.opset_import if not opset.domain) < 13:
        # Before, weights had one scale for all channels.
        model = onnx.version_converter.convert_version(model, 13)
    onnx.save(model, plain)
    quant_pre_process(plain, ready, skip_symbolic_shape=True)
    quantize_static(
        ready, made, Reader(samples), per_channel=True, reduce_range=not sums_bytes_in_32_bits()
    )
    return made


def _onnxruntime(model: str, threads: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Whoever waits for the next call by spinning takes a core from the others.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model, options)
    return lambda feeds: np.asarray(session.run(None, dict(feeds))[0])


def _openvino(model: str, precision: str | None, threads: int) -> Call:
    import openvino

    config = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1"}
    config["INFERENCE_NUM_THREADS"] = str(threads)
    if precision:
        config["INFERENCE_PRECISION_HINT"] = precision
    request = openvino.Core().compile_model(model, "CPU", config).create_infer_request()
    return lambda feeds: np.asarray(next(iter(request.infer(dict(feeds)).values())))


def _collage(folder: Path) -> Call:
    bundle = collage.load(folder)
    names = [info.name for info in bundle.inputs]
    return lambda feeds: np.asarray(bundle(*(feeds[name] for name in names)))


def run(
    name: str,
    max_error: float,
    budget: float,
    targets: Sequence[str],
    threads: int,
    log: Path | None = None,
) -> Row:
    """One network: who takes how long, and is off by how much."""
    model = NETWORKS[name]()
    samples = [random_inputs(model, seed) for seed in range(4)]
    fresh = [random_inputs(model, 100 + seed) for seed in range(4)]
    with tempfile.TemporaryDirectory(prefix="precision-") as place:
        folder = Path(place)
        int8 = _quantized(model, samples, folder)
        plain = str(folder / "plain.onnx")
        result = collage.optimize(
            *(model, targets),
            max_error=max_error,
            inputs=samples,
            time_budget_sec=budget,
            num_threads=threads,
            log=log,
        )
        engines = {
            FLOAT32: _openvino(plain, "f32", threads),
            "OpenVINO as it comes": _openvino(plain, None, threads),
            "OpenVINO, onnxruntime's int8": _openvino(str(int8), None, threads),
            "onnxruntime, float32": _onnxruntime(plain, threads),
            "onnxruntime, int8": _onnxruntime(str(int8), threads),
        }
        ours = _partitionings(result, folder)
        times = _in_turns(engines | ours, fresh[0], threads)
        wanted = [engines["onnxruntime, float32"](one) for one in fresh]
        errors = {
            who: max(map(_error, (call(one) for one in fresh), wanted))
            for who, call in (engines | ours).items()
        }
    found: Row = {"network": name, "max_error": max_error, "targets": list(targets), "who": []}
    for who, seconds in times.items():
        ratios = [one / base for one, base in zip(seconds, times[FLOAT32], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        milliseconds = statistics.median(seconds) * 1e3
        figures = {"ratio": middle, "low": low, "high": high, "ms": milliseconds}
        found["who"].append({"name": who, "ours": who in ours, **figures, "error": errors[who]})
    facts = {"threads": threads, "load": os.getloadavg()[0], "budget_sec": budget}
    return found | facts | {"commit": commit(), "when": now(), "machine": machine()}


def _partitionings(result: collage.Result, folder: Path) -> dict[str, Call]:
    """The search's answer first, then whatever else it compared and is not the same."""
    rows = result.report.end_to_end
    chosen = next(row.name for row in rows if row.chosen)
    names = [chosen, *(row.name for row in rows if row.name != chosen)]
    found: dict[str, Call] = {}
    libraries: set[Path] = set()
    for number, name in enumerate(one for one in names if one in result.alternatives):
        other = result.alternative(name)
        if other.library.path not in libraries:
            libraries.add(other.library.path)
            shown = f"{name}, the answer" if name == chosen else name
            found[shown] = _collage(other.export(folder / f"bundle-{number}"))
    return found


def _in_turns(engines: Mapping[str, Call], feeds: Feeds, threads: int) -> dict[str, list[float]]:
    clock = time.process_time if threads == 1 else time.perf_counter
    times: dict[str, list[float]] = {engine: [] for engine in engines}
    for _ in range(ROUNDS):
        for engine, call in engines.items():
            call(feeds)
            begin = clock()
            for _ in range(CALLS):
                call(feeds)
            times[engine].append((clock() - begin) / CALLS)
    return times


def _error(got: Array, wanted: Array) -> float:
    return float(np.abs(got.reshape(wanted.shape) - wanted).max() / np.abs(wanted).max())


def line(network: str, who: Row) -> str:
    """A line of the table."""
    ratio = f"{who['ratio']:.2f} ({who['low']:.2f} to {who['high']:.2f})"
    return f"| {network} | {who['name']} | {ratio} | {who['ms']:.2f} | {who['error']:.4f} |"


def page(rows: Sequence[Row]) -> str:
    """The tables with their conditions."""
    bits = "with VNNI" if sums_bytes_in_32_bits() else "no VNNI, so weights have 7 bits"

    def table(ours: bool) -> list[str]:
        named = [(row["network"], who) for row in rows for who in row["who"]]
        if ours:
            named.sort(key=lambda one: (names.index(one[0]), one[1]["ratio"]))
        return [
            "| network | who | time / OpenVINO's float32 | ms | off by |",
            "| --- | --- | --- | ---: | ---: |",
            *(line(network, who) for network, who in named if who["ours"] == ours),
        ]

    names = [row["network"] for row in rows]
    conditions = [
        f"- {row['network']}: {row['threads']} thread(s), {row['max_error']:g} allowed, "
        f"{', '.join(row['targets'])}, {row['budget_sec']:g} s; {row['machine']['cpu']}, "
        f"load {row['load']:.1f} on {row['machine']['cores']} cores; commit {row['commit']}, "
        f"{row['when']}"
        for row in rows
    ]
    return "\n".join(
        [
            "# Time against error, beside what others offer",
            "",
            (__doc__ or "").partition("\n\n")[2].strip().replace("``", "`"),
            "",
            f"Batch 1; {bits}. Ratio: median and quartiles of {ROUNDS} rounds of {CALLS} calls.",
            "",
            *conditions,
            "",
            "![Time against error](precision.svg)",
            "",
            "## What each search compared",
            "",
            *table(True),
            "",
            "## Others",
            "",
            *table(False),
            "",
        ]
    )


def picture(rows: Sequence[Row], place: Path) -> None:
    """Draw a field for each network: what the search compared as dots, others as crosses.

    Parameters
    ----------
    rows : sequence of dict
        Of :func:`run`.
    place : Path
        Where it goes.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, fields = pyplot.subplots(1, len(rows), figsize=(4.2 * len(rows), 3.8), squeeze=False)
    for field, row in zip(fields[0], rows, strict=True):
        for ours, mark, label in ((True, "o", "compared by the search"), (False, "x", "others")):
            some = [who for who in row["who"] if who["ours"] == ours]
            errors = [max(who["error"], _DRAWN) for who in some]
            field.plot(errors, [who["ratio"] for who in some], mark, label=label)
        (answer,) = [who for who in row["who"] if who["name"].endswith(", the answer")]
        field.annotate(" answer", (max(answer["error"], _DRAWN), answer["ratio"]), fontsize=8)
        field.axvline(row["max_error"], linestyle="--", color="grey")
        field.set_xscale("log")
        field.set_ylim(bottom=0)
        field.set_title(row["network"])
        field.set_xlabel("off by, of the largest value")
        field.grid(alpha=0.3)
    fields[0][0].set_ylabel("time / OpenVINO in float32")
    fields[0][0].legend(fontsize=7)
    figure.tight_layout()
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    # Lines of paths end in blanks.
    lines = [text.rstrip() for text in drawn.getvalue().splitlines()]
    place.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(
    network: Annotated[list[str], typer.Argument(help=f"Of {', '.join(NETWORKS)}.")],
    max_error: Annotated[float, typer.Option(help="What is allowed.")] = 0.05,
    budget: Annotated[float, typer.Option(help="Seconds for each search.")] = 150.0,
    targets: Annotated[str, typer.Option(help="Of each search.")] = ",".join(TARGETS),
    threads: Annotated[int, typer.Option(help="Of everybody.", min=1)] = os.cpu_count() or 1,
    log: Annotated[Path | None, typer.Option(help="Of the searches: they go on from it.")] = None,
    results: Annotated[bool, typer.Option(help="Add to the committed table.")] = False,
) -> None:
    """Search, quantize and time."""
    place = RESULTS.with_suffix(".json")
    for name in network:
        row = run(name, max_error, budget, targets.split(","), threads, log)
        for who in row["who"]:
            typer.echo(line(name, who))
        if not results:
            continue
        old: list[Row] = json.loads(place.read_text(encoding="utf-8")) if place.exists() else []
        rows = [*(one for one in old if one["network"] != name), row]
        place.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        RESULTS.write_text(page(rows), encoding="utf-8")
        picture(rows, RESULTS.with_suffix(".svg"))


if __name__ == "__main__":
    typer.run(main)
