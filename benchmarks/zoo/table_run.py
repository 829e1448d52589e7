"""The table of networks that were run."""

from __future__ import annotations

import math

from benchmarks.cells import cell
from benchmarks.gpu.contest import COLLAGE, EAGER
from benchmarks.zoo.cells import by_family, commits, seconds
from benchmarks.zoo.families import NETWORKS
from benchmarks.zoo.results import Row

AS_EXACT = 2.0
"""Our error, of eager PyTorch's in the same type; the rule of PyTorch's own accuracy check
(``torch._dynamo.utils.same``)."""

_AS_EXACT_OF_FEW = 3.0
_FEW = 1000
"""The same rule of outputs with fewer elements, whose error is more of an accident."""

_NOTHING = 1e-6
"""An error below float32's own is no error, whatever eager PyTorch's is."""


def exactness(row: Row) -> float | None:
    """Our error against float64 as a multiple of eager PyTorch's."""
    rms = row["rms"]
    if COLLAGE not in rms or EAGER not in rms:
        return None
    return float(rms[COLLAGE] / max(rms[EAGER], 1e-30))


def is_exact(row: Row) -> bool:
    """Whether it is as exact as PyTorch."""
    found = exactness(row)
    allowed = _AS_EXACT_OF_FEW if row.get("fewest_elements", _FEW) < _FEW else AS_EXACT
    return found is not None and (found <= allowed or row["rms"][COLLAGE] <= _NOTHING)


def speed(row: Row) -> float | None:
    """The best peer's time over ours: above 1 we are faster."""
    times = row["seconds"]
    peers = [sec for name, sec in times.items() if name != COLLAGE]
    return min(peers) / times[COLLAGE] if peers and COLLAGE in times else None


def run_verdict(row: Row) -> str:
    """Exact or not, fast or not, in words."""
    found, faster = exactness(row), speed(row)
    if found is None:
        return "not compared with float64"
    right = "right" if is_exact(row) else "WRONG"
    return f"{right}, {found:.1f} of eager's error; " + (
        f"{faster:.2f} times the best peer's speed" if faster is not None else "not timed"
    )


def run_page(rows: list[Row]) -> str:
    """Right, in time, fast, and where the time goes."""
    rows = [row for row in rows if row["network"] in NETWORKS and "skipped" not in row]
    speeds = [found for row in rows if (found := speed(row)) is not None]
    mean = math.exp(sum(map(math.log, speeds)) / len(speeds)) if speeds else math.nan
    answered = [row for row in rows if "failure" not in row]
    lines = [
        "# The zoo, run",
        "",
        f"{len(answered)} of {len(rows)} have an answer, {sum(map(is_exact, answered))} of these "
        f"are right (root-mean-square error against float64 at most {AS_EXACT:g} times eager "
        f"PyTorch's in the same type, {_AS_EXACT_OF_FEW:g} for outputs of fewer than {_FEW} "
        f"elements, or below {_NOTHING:g}); geometric mean {mean:.2f} times the "
        f"best peer's speed, {sum(found < 0.95 for found in speeds)} of {len(speeds)} below 0.95. "
        f"Commits: {commits(rows)}. {_places(rows)}",
        "",
        "| family | network | first answer s | search s | ours ms | peers ms | speed "
        "| error / eager's | dearest | result |",
        "| --- | --- | ---: | ---: | ---: | --- | ---: | ---: | --- | --- |",
    ]
    for family, members in by_family(rows):
        lines += [_line(family, row) for row in members]
    return "\n".join(lines)


def _line(family: str, row: Row) -> str:
    times = row["seconds"]
    peers = ", ".join(f"{n} {s * 1e3:.3f}" for n, s in sorted(times.items()) if n != COLLAGE)
    ours = f"{times[COLLAGE] * 1e3:.3f}" if COLLAGE in times else ""
    faster, found = speed(row), exactness(row)
    dear = "; ".join(f"{d['share']:.0%} {d['what']}" for d in row.get("dearest", [])[:2])
    wrong = "not compared with float64" if found is None else "" if is_exact(row) else "WRONG"
    failure = row.get("failure", wrong)
    missing = "; ".join(f"{n}: {why}" for n, why in row["peer_failures"].items())
    return (
        f"| {family} | {_name(row)} | {_first(row)} | {seconds(row, 'prepare_sec')} "
        f"| {ours} | {peers} | {'' if faster is None else f'{faster:.2f}'} "
        f"| {'' if found is None else f'{found:.2f}'} | {cell(dear)} "
        f"| {cell('; '.join(x for x in (failure, missing) if x))} |"
    )


def _name(row: Row) -> str:
    """With its element type and batch where it was asked for with them."""
    return ", ".join([row["network"], *row["variant"].split()[1:]])


def _first(row: Row) -> str:
    """When there was something to return; a search without a budget has nothing before its end."""
    return seconds(row.get("stages_sec", {}), "answer")


def _places(rows: list[Row]) -> str:
    places = {
        ", ".join([row["machine"]["cpu"], row["machine"]["cores"] + " cores",
                   *row.get("gpu", {}).values()])
        for row in rows
    }  # fmt: skip
    return "; ".join(sorted(places)) + "."
