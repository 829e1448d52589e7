"""What campaigns of random kills lost, kept from one to the next, and the page that says so."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from benchmarks.timing.machine import commit, machine, now

_HEAD = """# What random kills lose

    python -m benchmarks.fleet.faults --engine local --engine ray --engine rpc --kills 40

Searches of a network of eight layers in processes of their own (TVM and OpenBLAS, one thread).
Every half to three seconds something that takes part is killed (SIGKILL); a search whose own
process was killed is begun again with the same log. Lost is whatever is wrong afterwards: a
measurement that was reported and is not in the log, a record that is there twice, a failure that is
no candidate's, a wrong answer, a process or a scratch folder that is left.

| engine | kills | what was killed | searches | begun | reported | lost | took | commits |
| --- | ---: | --- | ---: | ---: | ---: | --- | ---: | --- |"""


@dataclass
class Tally:
    """What came of some searches.

    Attributes
    ----------
    kills : Counter of str
        What was killed, by its kind.
    searches, runs : int
        Searches, and how often one of them was begun.
    reported : int
        Measurements that searches said they had made.
    lost : Counter of str
        What was wrong afterwards.
    seconds : float
        Wall time.

    Examples
    --------
    >>> both = Tally(Counter(actors=2), 1, 1, 19) + Tally(Counter(actors=1, nodes=4), 1, 3, 19)
    >>> both.kills.total(), both.runs
    (7, 4)
    """

    kills: Counter[str] = field(default_factory=Counter)
    searches: int = 0
    runs: int = 0
    reported: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.kills + other.kills,
            self.searches + other.searches,
            self.runs + other.runs,
            self.reported + other.reported,
            self.lost + other.lost,
            self.seconds + other.seconds,
        )

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Self:
        """What was kept of one, as :func:`vars` gives it."""
        return cls(**{**kept, "kills": Counter(kept["kills"]), "lost": Counter(kept["lost"])})


class Campaigns:
    """All that were run, and where they are kept.

    Parameters
    ----------
    folder : Path
        Gets ``faults.json`` and ``faults.md``.
    kept : sequence of dict
        Campaigns before this one.
    notes : sequence of str
        Lines below the table: what came of them.
    """

    def __init__(
        self, folder: Path, kept: Sequence[dict[str, Any]] = (), notes: Sequence[str] = ()
    ) -> None:
        self._folder = folder
        self._kept = list(kept)
        self._notes = list(notes)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Those that a folder keeps; none where it keeps nothing.

        Parameters
        ----------
        folder : Path
            Where ``faults.json`` is.
        """
        file = folder / "faults.json"
        kept = json.loads(file.read_text()) if file.exists() else {}
        return cls(folder, kept.get("campaigns", ()), kept.get("notes", ()))

    def next_seed(self, engine: str) -> int:
        """One that no campaign of an engine had."""
        return 1 + max((one["seed"] for one in self._kept if one["engine"] == engine), default=-1)

    def begin(self, engine: str, seed: int) -> Callable[[Tally], None]:
        """Who keeps what comes of one more campaign, each time instead of what came before.

        Parameters
        ----------
        engine : str
            Its name.
        seed : int
            That its kills are drawn from.
        """
        facts: dict[str, Any] = {
            "engine": engine,
            "seed": seed,
            "commit": commit(),
            "date": now(),
            "machine": machine(),
        }
        place = len(self._kept)

        def keep(tally: Tally) -> None:
            self._kept[place:] = [{**facts, "tally": vars(tally)}]
            self._folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"campaigns": self._kept, "notes": self._notes}, indent=1)
            (self._folder / "faults.json").write_text(f"{text}\n")
            (self._folder / "faults.md").write_text(self.page())

        return keep

    def page(self) -> str:
        """The page of results: a row for each engine, and one for all of them."""
        engines = list(dict.fromkeys(one["engine"] for one in self._kept))
        rows = [_row(name, [o for o in self._kept if o["engine"] == name]) for name in engines]
        where = dict.fromkeys(
            f"{one['machine']['cpu']}, {one['machine']['cores']} cores"
            for one in self._kept
            if "machine" in one
        )
        lines = [_HEAD, *rows, _row("all", self._kept), "", *(f"On {one}." for one in where)]
        lines += ["", *self._notes] if self._notes else []
        return "\n".join([*lines, ""])


def _row(name: str, campaigns: Sequence[Mapping[str, Any]]) -> str:
    tally = sum((Tally.of(one["tally"]) for one in campaigns), Tally())
    killed = ", ".join(f"{what} {count}" for what, count in sorted(tally.kills.items()))
    lost = "; ".join(f"{what} ({count})" for what, count in sorted(tally.lost.items())) or "nothing"
    commits = ", ".join(dict.fromkeys(one["commit"] for one in campaigns))
    return (
        f"| {name} | {tally.kills.total()} | {killed} | {tally.searches} | {tally.runs} | "
        f"{tally.reported} | {lost} | {tally.seconds:.0f} s | {commits} |"
    )
