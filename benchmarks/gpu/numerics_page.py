"""Results of numerics cases: written as they come, and a page made from all of them."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_FAILURES = ("wrong", "not compiled", "not run", "out of time")


@dataclass(frozen=True)
class CaseResult:
    """How a case did.

    Attributes
    ----------
    status : str
        ``ok``, ``wrong``, ``not compiled``, ``not run`` (its process failed) or ``out of time``.
    largest_error : float or None
        Relative to the largest value of the output, over all inputs.
    message : str
        Why it is not ok.
    """

    family: str
    name: str
    backend: str
    pattern: str
    status: str
    rtol: float
    largest_error: float | None = None
    message: str = ""
    compile_sec: float = 0.0
    run_sec: float = 0.0


class Writer:
    """Writes each result as it comes, and the table at the end."""

    def __init__(self, folder: Path, total: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lines = (folder / "numerics.jsonl").open("w", encoding="utf-8")
        self._page = folder / "numerics.md"
        self._lock = threading.Lock()
        self._total = total
        self._begin = time.monotonic()
        self.results: list[CaseResult] = []

    def __call__(self, result: CaseResult) -> None:
        with self._lock:
            self.results.append(result)
            print(json.dumps(dataclasses.asdict(result)), file=self._lines, flush=True)
            count = len(self.results)
            spent = f"{time.monotonic() - self._begin:.0f} s, {count} of {self._total}"
            if result.status != "ok":
                print(f"[{spent}] {result.family}: {result.name}: {result.status}: "
                      f"{result.message}", flush=True)  # fmt: skip
            elif count % 25 == 0:
                print(f"[{spent}]", flush=True)

    def finish(self, conditions: str) -> None:
        """Write the page and print its summary."""
        self._lines.close()
        page = markdown(self.results, conditions)
        self._page.write_text(page, encoding="utf-8")
        print("\n".join(summary(self.results)), flush=True)


def summary(results: Sequence[CaseResult]) -> list[str]:
    """One Markdown row per family."""
    columns = ("backend", "cases", "ok", "largest error of those", *_FAILURES)
    rows = [
        "| " + " | ".join(columns) + " |",
        "| --- " + "| ---: " * (len(columns) - 1) + "|",
    ]
    for family in sorted({r.family for r in results}):
        mine = [r for r in results if r.family == family]
        count = Counter(r.status for r in mine)
        errors = [r.largest_error for r in mine if r.status == "ok" and r.largest_error is not None]
        worst = f"{max(errors):.1e}" if errors else ""
        rest = " | ".join(str(count[status]) for status in _FAILURES)
        rows.append(f"| {family} | {len(mine)} | {count['ok']} | {worst} | {rest} |")
    return rows


def markdown(results: Sequence[CaseResult], conditions: str) -> str:
    """The page: a summary, then every case that is not ok with its reason, then all errors."""
    lines = [
        "# Numerics on the GPU",
        "",
        f"Each case against float64 on random inputs. {conditions}",
        "",
        *summary(results),
        "",
    ]
    for result in sorted(results, key=lambda r: (r.family, r.name)):
        if result.status == "ok":
            lines.append(f"- {result.family} {result.name}: {result.largest_error:.1e}")
        else:
            lines.append(f"- **{result.family} {result.name}: {result.status}: {result.message}**")
    return "\n".join(lines) + "\n"
