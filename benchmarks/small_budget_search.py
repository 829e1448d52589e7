"""One search of :mod:`benchmarks.small_budget`, in a process of its own.

Run by its path, with the checkout that is to search in ``PYTHONPATH``: besides ``collage`` nothing
of that is imported, so that an earlier one can be compared with this.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import collage
from collage.cost.models import DeviceSpec, RooflineCostModel

TARGETS = ("llvm", "onednn", "openblas", "openvino")
_CPU = DeviceSpec("a CPU", 2e11, 2e11, 2e11, 2e10, 1e-6)


def options(how: str) -> dict[str, Any]:
    """What :func:`collage.optimize` is told.

    Parameters
    ----------
    how : str
        A budget in seconds, ``estimate``, ``all`` or a strategy.
    """
    if how == "estimate":
        return {"cost_model": RooflineCostModel(_CPU)}
    if how == "all":
        return {}
    return {"strategy": how} if ":" in how else {"time_budget_sec": float(how)}


def main(model: str, how: str, bundle: str) -> None:
    """Search, export, and print what came out as the last line."""
    begin = time.monotonic()
    result = collage.optimize(model, TARGETS, **options(how))
    result.export(bundle)
    taken_sec = time.monotonic() - begin
    rows = result.report.end_to_end
    found = {
        "taken_sec": taken_sec,
        "chosen": next(row.name for row in rows if row.chosen),
        "timed": sum(row.median_sec is not None for row in rows),
        "contenders": len(rows),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
