"""Kills at random what takes part in a search, the search included, and looks what was lost.

    python -m benchmarks.fleet.faults --engine local --engine ray --engine rpc --kills 40

Every kill is a SIGKILL at a random moment. A search whose own process was killed is begun again
with the same log. Afterwards must hold: the log can be read; every measurement that was reported is
in it, none twice; none says that something failed that did not fail undisturbed; the answer
computes what the network computes; no process and no scratch folder is left.

What came of each search is added to what earlier campaigns left in
``benchmarks/results/faults.json``, and the page ``benchmarks/results/faults.md`` is written from
all of that. So a campaign may be run in pieces; each draws other moments and victims.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import psutil

from benchmarks.fleet.tally import Campaigns, Tally
from benchmarks.fleet.victims import FLEETS, Fleet
from collage.cost.database import JsonLinesDatabase

RESULTS = Path(__file__).parents[1] / "results"
_MARK = "COLLAGE_FAULTS"
_HEAD = "the search itself"
_FIRST_SEC, _LAST_SEC = 0.5, 3.0
"""Between two kills."""
_PER_SEARCH = 20
"""Kills, so that it comes to an end."""
_LIMIT_SEC = 900.0
_SETTLE_SEC = 15.0
_APART = 1e-4


class Run:
    """A search in a process of its own, with what it has said so far."""

    def __init__(self, workers: str, log: Path, folder: Path, mark: str) -> None:
        command = [sys.executable, "-m", "benchmarks.fleet.searching", f"--workers={workers}"]
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (read when it has ended)
        self._process = subprocess.Popen(
            [*command, f"--log={log}", f"--folder={folder / 'bundle'}"],
            env={**os.environ, _MARK: mark, "TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=self.errors,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self.head = psutil.Process(self._process.pid)
        self.events: list[dict[str, object]] = []
        self.has_begun = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(json.JSONDecodeError):  # Killed in the middle of a line.
                self.events.append(json.loads(line))
            if self.events and self.events[-1]["stage"] == "measure":
                self.has_begun.set()
        self.has_begun.set()

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """As the system would, with nothing said."""
        self._process.kill()

    def finish(self, limit_sec: float) -> int | None:
        """Its exit status; None when it took too long."""
        status: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._process.wait(limit_sec)
        if status is None:
            self.kill()
            self._process.wait()
        self._reader.join()
        return status

    def last_words(self) -> str:
        """The end of what it wrote to its standard error."""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def trial(
    fleet: Fleet, kills: int, chance: random.Random, tally: Tally, undisturbed: set[str], log: Path
) -> None:
    """One search, begun again whenever it was killed itself, until it has its answer."""
    mark = uuid.uuid4().hex
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    reported: list[str] = []
    begin = time.monotonic()
    left = kills
    tally.searches += 1
    try:
        while True:
            run = Run(fleet.workers, log, folder, mark)
            tally.runs += 1
            run.has_begun.wait(_LIMIT_SEC)
            was_killed = False
            while left and not run.is_over and not was_killed:
                time.sleep(chance.uniform(_FIRST_SEC, _LAST_SEC))
                if run.is_over:
                    break
                was_killed = _kill(fleet, run, chance, tally)
                left -= 1
            status = run.finish(_LIMIT_SEC)
            reported += [str(e["message"]) for e in run.events if e["stage"] == "measure"]
            if not was_killed:
                break
        tally.reported += len(reported)
        if status != 0:
            tally.lost[f"search ended with {status}: {run.last_words()[:150]}"] += 1
        else:
            apart = float(str(run.events[-1].get("apart", "inf")))
            if not apart < _APART:
                tally.lost[f"the answer is off by {apart:g}"] += 1
        _look(log, reported, tally, undisturbed)
        _look_for_leftovers(mark, folder, tally)
    finally:
        tally.seconds += time.monotonic() - begin
        shutil.rmtree(folder, ignore_errors=True)


def _kill(fleet: Fleet, run: Run, chance: random.Random, tally: Tally) -> bool:
    """Kill something that takes part; whether it was the search itself."""
    victims: dict[str, list[Callable[[], None]]] = {_HEAD: [run.kill]}
    with contextlib.suppress(psutil.NoSuchProcess):
        victims |= fleet.victims(run.head)
    name = chance.choice(sorted(name for name in victims if victims[name]))
    with contextlib.suppress(psutil.NoSuchProcess):
        chance.choice(victims[name])()
        tally.kills[name] += 1
    return name == _HEAD


def _look(log: Path, reported: Sequence[str], tally: Tally, undisturbed: set[str]) -> None:
    database = JsonLinesDatabase(log, read_only=True)
    for problem in database.problems:
        tally.lost[f"a line of the log {problem.reason}"] += 1
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    candidates = [one for one in lines if one["kind"] in ("partition", "transition")]
    there = Counter(f"{one['description']} on {one['backend']}" for one in candidates)
    said = Counter(message.partition(": ")[0] for message in reported)
    for name, count in said.items():
        if there[name] < count:
            tally.lost["a measurement that was reported is not in the log"] += count - there[name]
    keys = Counter(json.dumps([one[n] for n in _KEY], sort_keys=True) for one in candidates)
    tally.lost["a record is there twice"] += sum(count - 1 for count in keys.values())
    for record in database.records():
        fact = f"{record.description} on {record.backend}: {record.cost.status.value}"
        if undisturbed and not record.cost.is_valid and fact not in undisturbed:
            tally.lost[f"held against a candidate: {record.cost.reason[:100]}"] += 1
    tally.lost += Counter()


_KEY = ("kind", "workload", "tensors", "target", "versions", "config", "device", "num_threads")


def _look_for_leftovers(mark: str, folder: Path, tally: Tally) -> None:
    end = time.monotonic() + _SETTLE_SEC
    while (left := _marked(mark)) and time.monotonic() < end:
        time.sleep(0.2)
    for process in left:
        with contextlib.suppress(psutil.Error):
            tally.lost[f"a process that is left: {' '.join(process.cmdline())[:100]}"] += 1
            process.kill()
    scratch = [path for path in folder.glob("collage-*-scratch/*") if path.is_dir()]
    tally.lost["a scratch folder that is left"] += len(scratch)
    tally.lost += Counter()


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def campaign(
    name: str,
    kills: int,
    seed: int,
    limit_sec: float = float("inf"),
    keep: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Searches with so many kills in all, after one that is left alone.

    Parameters
    ----------
    name : str
        Of the engine.
    kills : int
        How many.
    seed : int
        What moments and victims are drawn from.
    limit_sec : float
        From the end of the search that is left alone; none begins after it.
    keep : callable
        Given what came of it so far, after every search.

    Returns
    -------
    Tally
        Of all searches but the one that was left alone.

    Raises
    ------
    RuntimeError
        When already that one fails.
    """
    chance, tally = random.Random(seed), Tally()
    with FLEETS[name]() as fleet, tempfile.TemporaryDirectory(prefix="faults-logs-") as folder:
        calm = Tally()
        log = Path(folder) / "calm.jsonl"
        trial(fleet, 0, chance, calm, set(), log)
        if calm.lost:
            raise RuntimeError(f"already an undisturbed search fails: {dict(calm.lost)}")
        undisturbed = {
            f"{one.description} on {one.backend}: {one.cost.status.value}"
            for one in JsonLinesDatabase(log, read_only=True).records()
        }
        number, begin = 0, time.monotonic()
        while tally.kills.total() < kills and time.monotonic() - begin < limit_sec:
            number += 1
            some = min(_PER_SEARCH, kills - tally.kills.total())
            trial(fleet, some, chance, tally, undisturbed, Path(folder) / f"{number}.jsonl")
            sys.stderr.write(f"{name}: {dict(tally.kills)}, lost: {dict(tally.lost)}\n")
            keep(tally)
    return tally


def main() -> None:
    """Kill, look, and write the page."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # So that fleets are ended.
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=sorted(FLEETS), action="append")
    parser.add_argument("--kills", type=int, default=40, help="of each engine")
    parser.add_argument("--seed", type=int, help="by default one that no campaign had")
    parser.add_argument("--limit-sec", type=float, default=float("inf"), help="of each engine")
    args = parser.parse_args()
    campaigns = Campaigns.read(RESULTS)
    for name in args.engine or sorted(FLEETS):
        seed = campaigns.next_seed(name) if args.seed is None else args.seed
        campaign(name, args.kills, seed, args.limit_sec, campaigns.begin(name, seed))
    sys.stdout.write(campaigns.page())


if __name__ == "__main__":
    main()
