"""Searches within an error, beside peers: ``taskset -c 0 python -m benchmarks.zoo.searched``.

Each network is searched once, cold, with ``max_error``; then the answer, the best that keeps to
float32, and each library alone in the precisions compared are timed in turns with onnxruntime and
OpenVINO (float32, and bfloat16 where the processor multiplies in it), on a sample that the search
has not seen. With one thread the process's own time counts, which another program's load hardly
lengthens. Each network has a process of its own; ``--out`` adds rows to a JSON file, from which
the table beside it is written anew.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import collage
from benchmarks.gpu.networks import build, network
from benchmarks.timing.machine import commit, machine, now
from benchmarks.timing.statistics import Spread, max_relative_difference, ratio_spread
from benchmarks.zoo.importing import exported
from benchmarks.zoo.peers import (
    Arrays,
    Session,
    arrays,
    eager_session,
    onnxruntime_session,
    openvino_session,
    write_onnx,
)
from collage.backends.devices.cpu_flags import cpu_flags_here

NETWORKS = (
    "resnet50", "resnext50", "torchvision/r3d_18", "timm/nasnet_a_6_1056", "plain/dcgan_generator",
    "mobilenet_v2", "timm/efficientnet_b0", "torchvision/shufflenet_v2_x1_0",
    "torchvision/squeezenet1_1", "torchvision/densenet121", "bert_base", "gpt2", "vit_b16",
    "torchvision/convnext_tiny",
)  # fmt: skip
TARGETS = ("llvm", "onednn", "openvino", "onnxruntime")
ROUNDS, TURN_SEC = 15, 0.15
FLOAT32 = 1e-5
"""Errors of answers that keep to float32 are below, relative to the largest value."""

Row = dict[str, Any]


def row(name: str, batch: int, max_error: float, budget_sec: float, threads: int) -> Row:
    """Search one network and time it beside the peers.

    Parameters
    ----------
    name : str
        Of :mod:`benchmarks.gpu.networks` or, with a slash, of the zoo.
    batch : int
    max_error : float
        Relative to the largest value.
    budget_sec : float
        Of the search.
    threads : int
        Of everybody.

    Returns
    -------
    dict
        Under ``engines`` each one's seconds by round and error; the rest are conditions.
    """
    torch.set_num_threads(threads)
    module = build(name)
    draw = network(name).inputs
    shown, fresh = (draw(batch, torch.Generator().manual_seed(seed)) for seed in (11, 12))
    program = exported(module, shown, "torch")
    with tempfile.TemporaryDirectory(prefix="collage-searched-") as place:
        folder = Path(place)
        begin = time.monotonic()
        result = collage.optimize(
            *(program, TARGETS),
            max_error=max_error,
            inputs=_samples(program, shown),
            time_budget_sec=budget_sec,
            num_threads=threads,
        )
        search_sec = time.monotonic() - begin
        answer = next(one.name for one in result.report.end_to_end if one.chosen)
        engines = _ours(result, fresh, folder) | _peers(program, fresh, folder, threads)
        wanted = arrays(eager_session(module, fresh)())
        found = {label: arrays(call()) for label, call in engines.items()}
        times = _in_turns(engines, threads)
    return {
        "network": name, "batch": batch, "max_error": max_error, "budget_sec": budget_sec,
        "search_sec": search_sec, "threads": threads, "targets": list(TARGETS), "answer": answer,
        "engines": {
            label: {"sec": times[label], "error": _error(found[label], wanted)}
            for label in engines
        },
        "commit": commit(), "when": now(), "machine": machine(),
    }  # fmt: skip


def _samples(program: Any, shown: Sequence[torch.Tensor]) -> dict[str, np.ndarray]:
    names = program.graph_signature.user_inputs
    return {name: x.numpy() for name, x in zip(names, shown, strict=True)}


def _error(found: Arrays, wanted: Arrays) -> float:
    found = [mine.reshape(true.shape) for mine, true in zip(found, wanted, strict=True)]
    return max_relative_difference(found, wanted)


def _ours(
    result: collage.Result, fresh: Sequence[torch.Tensor], folder: Path
) -> dict[str, Session]:
    """What the search compared as whole models, but what is the same as another."""
    sessions: dict[str, Session] = {}
    libraries: set[Path] = set()
    rows = sorted(result.report.end_to_end, key=lambda one: not one.chosen)
    for number, one in enumerate(x for x in rows if x.name in result.alternatives):
        other = result.alternative(one.name)
        if other.library.path in libraries:
            continue
        libraries.add(other.library.path)
        bundle = collage.load(other.export(folder / f"bundle-{number}"))
        sessions[f"collage:{one.name}"] = _call(bundle, [x.numpy() for x in fresh])
    return sessions


def _call(bundle: Any, given: Sequence[np.ndarray]) -> Session:
    return lambda: bundle(*given)


def _peers(
    program: Any, inputs: tuple[torch.Tensor, ...], folder: Path, threads: int
) -> dict[str, Session]:
    """Their sessions, but of one that refuses this network, which is said."""
    file = folder / "model.onnx"
    write_onnx(program, file)
    makers: dict[str, Callable[[], Session]] = {
        "onnxruntime": lambda: onnxruntime_session(file, inputs, threads),
        "OpenVINO": lambda: openvino_session(file, inputs, "f32", threads),
    }
    if {"avx512_bf16", "amx_bf16"} & cpu_flags_here():
        makers["OpenVINO bfloat16"] = lambda: openvino_session(file, inputs, "bf16", threads)
    found: dict[str, Session] = {}
    for label, make in makers.items():
        try:
            found[label] = make()
        except Exception as err:  # noqa: BLE001 - they raise anything; its cell is empty
            print(f"{label}: {err}", file=sys.stderr)
    return found


def _in_turns(engines: Mapping[str, Session], threads: int) -> dict[str, list[float]]:
    clock = time.process_time if threads == 1 else time.perf_counter
    times: dict[str, list[float]] = {label: [] for label in engines}
    for _ in range(ROUNDS):
        for label, call in engines.items():
            call()
            calls, begin = 0, clock()
            while (spent := clock() - begin) < TURN_SEC:
                call()
                calls += 1
            times[label].append(spent / calls)
    return times


def table(rows: Sequence[Row]) -> list[str]:
    """The table's lines: a row for each network and batch, and the geometric means."""
    lines = [
        "| network | batch | search s | float32 ms | peer | peer / own | answer | off by | ms "
        "| OpenVINO bfloat16 ms | off by | OpenVINO / answer |",
        "| --- | ---: | ---: | ---: | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    plain_ratios, ratios = list[float](), list[float]()
    for one in rows:
        engines = one["engines"]
        ours = {label: x for label, x in engines.items() if label.startswith("collage:")}
        plain = {label: x for label, x in ours.items() if x["error"] <= FLOAT32}
        peers = {label: engines[label] for label in ("onnxruntime", "OpenVINO") if label in engines}
        answer = ours[f"collage:{one['answer']}"]
        cells = [one["network"], str(one["batch"]), f"{one['search_sec']:.0f}"]
        if plain and peers:
            own, peer = (min(x, key=lambda n, x=x: _ms(x[n])) for x in (plain, peers))
            ratio = ratio_spread(peers[peer]["sec"], plain[own]["sec"])
            plain_ratios.append(ratio.median)
            cells += [f"{_ms(plain[own]):.3g}", peer, _spread(ratio)]
        else:
            cells += ["", "", ""]
        cells += [one["answer"], f"{answer['error']:.4f}", f"{_ms(answer):.3g}"]
        if "OpenVINO bfloat16" in engines:
            switch = engines["OpenVINO bfloat16"]
            ratio = ratio_spread(switch["sec"], answer["sec"])
            ratios.append(ratio.median)
            cells += [f"{_ms(switch):.3g}", f"{switch['error']:.4f}", _spread(ratio)]
        else:
            cells += ["", "", ""]
        lines.append(f"| {' | '.join(cells)} |")
    means = [f"{statistics.geometric_mean(x):.2f}" if x else "" for x in (plain_ratios, ratios)]
    return [*lines, f"| geometric mean | | | | | {means[0]} | | | | | | {means[1]} |"]


def _ms(engine: Row) -> float:
    return 1e3 * float(statistics.median(engine["sec"]))


def _spread(ratio: Spread) -> str:
    return f"{ratio.median:.2f} ({ratio.lower_quartile:.2f} to {ratio.upper_quartile:.2f})"


def page(rows: Sequence[Row]) -> str:
    """The table with its conditions."""
    abouts = dict.fromkeys(
        f"- {one['machine']['cpu']}; {one['threads']} thread(s), {one['max_error']:g} allowed, "
        f"budget {one['budget_sec']:g} s, {', '.join(one['targets'])}"
        for one in rows
    )
    commits = ", ".join(dict.fromkeys(str(one["commit"]) for one in rows))
    loads = [float(one["machine"]["load_average_before"]) for one in rows]
    text = (__doc__ or "").partition("\n\n")[2].strip().replace("``", "`")
    return "\n".join(
        [
            "# Searches within an error, beside peers",
            "",
            text,
            "",
            *abouts,
            f"- Commits {commits}; {rows[0]['when']} to {rows[-1]['when']}; load average before "
            f"each {min(loads):.1f} to {max(loads):.1f}",
            f"- Ratios: median and quartiles of {ROUNDS} rounds; errors: the largest difference "
            "to eager PyTorch in float32, relative to the largest value",
            "",
            *table(rows),
            "",
        ]
    )


def main() -> int:
    """Search and time networks; prints a row of the table each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default=",".join(NETWORKS), help="names, with commas")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--max-error", type=float, default=0.01)
    parser.add_argument("--budget", type=float, default=180.0, help="seconds for each search")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for one network")
    parser.add_argument("--out", type=Path, help="a JSON file that rows are added to")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one = row(args.one, args.batch, args.max_error, args.budget, args.threads)
        print(json.dumps(one), flush=True)
        return 0
    failed = 0
    for name in args.networks.split(","):
        found = _in_a_process(name, args)
        if isinstance(found, str):
            print(f"{name}: {found}", file=sys.stderr, flush=True)
            failed += 1
            continue
        print(table([found])[2], flush=True)
        if args.out:
            rows = json.loads(args.out.read_text()) if args.out.exists() else []
            key = (found["network"], found["batch"])
            rows = [one for one in rows if (one["network"], one["batch"]) != key] + [found]
            args.out.write_text(json.dumps(rows, indent=1) + "\n")
            args.out.with_suffix(".md").write_text(page(rows))
    return 1 if failed else 0


def _in_a_process(name: str, args: argparse.Namespace) -> Row | str:
    """The row, or in a line why there is none."""
    given = ("batch", "max_error", "budget", "threads")
    options = [f"--{one.replace('_', '-')}={getattr(args, one)}" for one in given]
    command = [sys.executable, "-m", "benchmarks.zoo.searched", "--one", name, *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.limit)
    except subprocess.TimeoutExpired:
        return f"not done in {args.limit:.0f} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no message"])[-1]
    answer: Row = json.loads(done.stdout.splitlines()[-1])
    return answer


if __name__ == "__main__":
    sys.exit(main())
