"""Time against error: what a search gives within an error, beside onnxruntime's int8 and OpenVINO.

``python -m benchmarks.precision NETWORK`` prints a row for every engine; with ``--results`` it puts
them into ``benchmarks/results/precision.md``. Weights are random, samples are drawn; four of them
calibrate all that is quantized, errors are the largest over four that nobody has seen, relative to
the largest value of the output in float32 (onnxruntime's). All engines run in one process and in
turns, so that what disturbs one disturbs all.
"""

from __future__ import annotations

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

Array = np.ndarray
Feeds = Mapping[str, Array]

NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "squeezenet": lambda: before_softmax(light_model("squeezenet")),
    "resnet50": lambda: before_softmax(light_model("resnet50")),
    "mobilenet_v2": mobilenet_v2,
    "transformer": lambda: tiny_bert(tokens=64, width=256, heads=4, layers=4),
}
TARGETS = ("llvm", "openvino")
ROUNDS, CALLS = 21, 3
RESULTS = Path(__file__).parent / "results" / "precision.md"


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
    quantize_static(ready, made, Reader(samples), per_channel=True, reduce_range=_reduces_range())
    return made


def _reduces_range() -> bool:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return not any(flag in text for flag in ("avx512_vnni", "avx_vnni", "amx_int8"))


def _onnxruntime(model: bytes | str) -> Callable[[Feeds], Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Whoever waits for the next call by spinning takes a core from the others.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model, options)
    return lambda feeds: np.asarray(session.run(None, dict(feeds))[0])


def _openvino(model: str, precision: str | None) -> Callable[[Feeds], Array]:
    import openvino

    config = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1"}
    if precision:
        config["INFERENCE_PRECISION_HINT"] = precision
    request = openvino.Core().compile_model(model, "CPU", config).create_infer_request()
    return lambda feeds: np.asarray(next(iter(request.infer(dict(feeds)).values())))


def _collage(folder: Path) -> Callable[[Feeds], Array]:
    bundle = collage.load(folder)
    names = [info.name for info in bundle.inputs]
    return lambda feeds: np.asarray(bundle(*(feeds[name] for name in names)))


def run(name: str, max_error: float, budget: float, pictures: Path | None = None) -> list[str]:
    """One network's rows: engine, ratio to OpenVINO in float32 with its quartiles, error."""
    model = NETWORKS[name]()
    samples = [random_inputs(model, seed) for seed in range(4)]
    fresh = [random_inputs(model, 100 + seed) for seed in range(4)]
    with tempfile.TemporaryDirectory(prefix="precision-") as place:
        folder = Path(place)
        int8 = _quantized(model, samples, folder)
        plain = str(folder / "plain.onnx")
        result = collage.optimize(
            *(model, TARGETS), max_error=max_error, inputs=samples, time_budget_sec=budget
        )
        bundle = result.export(folder / "bundle")
        if pictures is not None:
            report = (bundle / "report.html").read_text(encoding="utf-8")
            pictures.write_text(report, encoding="utf-8")
        chosen = next(row for row in result.report.end_to_end if row.chosen)
        engines: dict[str, Callable[[Feeds], Array]] = {
            "OpenVINO, float32": _openvino(plain, "f32"),
            "OpenVINO as it comes": _openvino(plain, None),
            "OpenVINO, onnxruntime's int8": _openvino(str(int8), None),
            "onnxruntime, float32": _onnxruntime(plain),
            "onnxruntime, int8": _onnxruntime(str(int8)),
            f"Collage within {max_error:g}: {chosen.name}": _collage(bundle),
        }
        times = _in_turns(engines, fresh[0])
        wanted = [engines["onnxruntime, float32"](one) for one in fresh]
        errors = {
            engine: max(map(_error, (call(one) for one in fresh), wanted))
            for engine, call in engines.items()
        }
    first = times["OpenVINO, float32"]
    rows = []
    for engine, seconds in times.items():
        ratios = [one / base for one, base in zip(seconds, first, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        milliseconds = statistics.median(seconds) * 1e3
        rows.append(
            f"| {name} | {engine} | {middle:.2f} ({low:.2f} to {high:.2f}) | {milliseconds:.2f} | "
            f"{errors[engine]:.4f} |"
        )
    return rows


def _in_turns(
    engines: Mapping[str, Callable[[Feeds], Array]], feeds: Feeds
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {engine: [] for engine in engines}
    for call in engines.values():
        call(feeds)
    for _ in range(ROUNDS):
        for engine, call in engines.items():
            begin = time.perf_counter()
            for _ in range(CALLS):
                call(feeds)
            times[engine].append((time.perf_counter() - begin) / CALLS)
    return times


def _error(got: Array, wanted: Array) -> float:
    return float(np.abs(got.reshape(wanted.shape) - wanted).max() / np.abs(wanted).max())


def page(rows: list[str], max_error: float) -> str:
    """The table with its conditions."""
    here: Mapping[str, Any] = machine()
    return "\n".join(
        [
            "# Time against error, beside what others offer",
            "",
            (__doc__ or "").partition("\n\n")[2].strip().replace("``", "`"),
            "",
            f"- Machine: {here['cpu']}, {here['cores']} cores, {here['memory_gib']} GiB; "
            + ("no VNNI, so weights have 7 bits" if _reduces_range() else "with VNNI"),
            f"- {here['cores']} threads each, batch 1, error allowed {max_error:g}, targets "
            f"{', '.join(TARGETS)}",
            f"- Ratio: median and quartiles of {ROUNDS} rounds of {CALLS} calls",
            f"- Commit {commit() or 'unknown'}, {now()}",
            "",
            "| network | engine | time / OpenVINO's float32 | ms | off by |",
            "| --- | --- | ---: | ---: | ---: |",
            *rows,
            "",
        ]
    )


def main(
    network: Annotated[list[str], typer.Argument(help=f"Of {', '.join(NETWORKS)}.")],
    max_error: Annotated[float, typer.Option(help="What is allowed.")] = 0.05,
    budget: Annotated[float, typer.Option(help="Seconds for each search.")] = 150.0,
    report: Annotated[Path | None, typer.Option(help="The last search's report.")] = None,
    results: Annotated[bool, typer.Option(help="Write the committed table.")] = False,
) -> None:
    """Search, quantize and time."""
    rows = [row for name in network for row in run(name, max_error, budget, report)]
    typer.echo(page(rows, max_error))
    if results:
        RESULTS.write_text(page(rows, max_error), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
