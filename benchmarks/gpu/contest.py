"""One model at one batch size: prepare every contender, check it, time all of them in turns."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu import device
from benchmarks.gpu.rows import Row
from benchmarks.gpu.slots import GpuSlot
from benchmarks.timing.child import OPENMP_DEFAULT, ChildError, JsonChild
from benchmarks.timing.statistics import max_relative_difference, rms_relative_difference

EAGER = "eager"
COLLAGE = "collage"
WRONG_DIFFERENCE = 0.1
"""Of the largest output value: a network's depth in float16 stays well below, another function does
not. Above it an engine's time means nothing."""

AFTER_SEARCH_SEC = 30.0
"""What is left to do once a search is over: partitionings that take part beside its answer may have
to be compiled, and all are exported."""

_WORKER = "benchmarks.gpu.worker"


@dataclass(frozen=True)
class Plan:
    """How a contest goes.

    Attributes
    ----------
    peers : tuple of str
        Contenders besides ours.
    targets : tuple of str
        For the search.
    device, dtype : str
        As :class:`benchmarks.gpu.engines.base.Job` has them.
    log : Path
        Of the search; kept.
    rounds : int
        Turns of each contender.
    compiler_cache : Path or None
        Where ``torch.compile`` keeps what it made of each contest for another run; by default it
        starts with nothing.
    abreast : int
        Contests that are timed one after the other on the same GPU.
    search_sec : float or None
        The search's time budget, as far as the contest's goes; by default what is left of it.
    alternatives : bool
        Whether what the search did not choose is timed too.
    wrong_difference : float
        Above this a contender counts as failed.
    turn_sec : float
        Of timed calls in one turn, in ``samples`` batches.
    """

    peers: tuple[str, ...]
    targets: tuple[str, ...]
    device: str
    dtype: str
    log: Path
    compiler_cache: Path | None = None
    rounds: int = 7
    abreast: int = 1
    search_sec: float | None = None
    alternatives: bool = True
    wrong_difference: float = WRONG_DIFFERENCE
    turn_sec: float = 0.1
    samples: int = 5
    seed: int = 0


Say = Callable[[str], None]


class Contest:
    """Runs one contest; use :meth:`run` once.

    Parameters
    ----------
    model : str
    batch : int
    work : Path
        For everything that is built.
    plan : Plan
    slot : GpuSlot
        Where its processes run.
    budget_sec : float
        For all of it; preparing is cut short so that the rounds can be run.
    say : callable
        Informed of each step.
    """

    def __init__(
        self,
        model: str,
        batch: int,
        work: Path,
        plan: Plan,
        slot: GpuSlot,
        budget_sec: float,
        say: Say,
    ) -> None:
        self._model, self._batch, self._plan, self._say = model, batch, plan, say
        self._work = work
        self._slot = slot
        self._begin = time.monotonic()
        # What is left after preparing: loading our bundles, comparing outputs, the rounds.
        contenders = len(plan.peers) + len(plan.targets) + 3
        rounds_sec = plan.abreast * plan.rounds * contenders * (2.5 * plan.turn_sec + 0.05)
        self._prepare_until = self._begin + max(0.4 * budget_sec, budget_sec - rounds_sec - 30.0)
        self._end = self._begin + budget_sec
        cache = plan.compiler_cache
        self._compiler_cache = (work if cache is None else cache / work.name) / "inductor"
        self._is_warm = self._compiler_cache.exists()
        self.rows: dict[str, Row] = {}
        self.reference_dtype = ""
        self._running: dict[str, JsonChild] = {}
        self._outputs: dict[str, list[np.ndarray]] = {}
        self._stack = ExitStack()

    def run(self) -> list[Row]:
        """Everything; failed contenders are rows too."""
        self._slot.enter()
        self._work.mkdir(parents=True, exist_ok=True)
        with self._stack, ThreadPoolExecutor(16) as pool:
            with self._slot.turns.preparing():
                # They import what they need while the weights are made.
                self._running = {name: self._child(name) for name in (COLLAGE, *self._plan.peers)}
                self._build()
                if self._plan.device == "cpu":
                    # Who is not at work is stopped: a search measures on the same cores.
                    for name in self._plan.peers:
                        self._load_peer(name)
                        self._pause(name)
                    self._load_ours(self._search(), pool)
                else:
                    bundles = pool.submit(self._search)
                    list(pool.map(self._load_peer, self._plan.peers))
                    self._load_ours(bundles.result(), pool)
                self._compare()
            with self._slot.turns.timing():
                self._rounds()
        return list(self.rows.values())

    def _left(self, until: float) -> float:
        return max(1.0, until - time.monotonic())

    def _child(self, engine: str) -> JsonChild:
        plan = self._plan
        arguments = [engine, self._model, str(self._batch)]
        arguments += [str(self._work / "weights.pt"), str(self._work), plan.device, plan.dtype]
        log = self._work / f"{_file_name(engine)}.stderr"
        inductor = {"TORCHINDUCTOR_CACHE_DIR": str(self._compiler_cache)}
        waiting = {} if engine == COLLAGE else OPENMP_DEFAULT
        environment = {**self._slot.environment, **inductor, **waiting}
        return self._stack.enter_context(JsonChild(_WORKER, arguments, log, environment))

    def _build(self) -> None:
        self._say("weights and reference")
        child = self._child(EAGER)
        child.ask({"do": "build", "seed": self._plan.seed}, self._left(self._prepare_until))
        path = self._work / "reference.npz"
        request = {"do": "reference", "path": str(path)}
        answer = child.ask(request, self._left(self._prepare_until))
        self._outputs["reference"] = _arrays(path)
        self.reference_dtype = answer["dtype"]
        child.close()

    def _search(self) -> dict[str, str]:
        """Our bundles by name."""
        row = self.rows.setdefault(COLLAGE, Row(COLLAGE))
        left = self._left(self._prepare_until)
        asked, had = self._plan.search_sec, max(0.5 * left, left - AFTER_SEARCH_SEC)
        options = {
            "targets": list(self._plan.targets),
            "log": str(self._plan.log),
            # A search that is promised more than is left is ended without an answer.
            "time_budget_sec": had if asked is None else min(asked, had),
            "alternatives": self._plan.alternatives,
        }
        row.figures["budget_sec"] = options["time_budget_sec"]
        if asked is not None and had < asked:
            self._say(
                f"{COLLAGE}: {had:.0f} s for the search, not {asked:.0f}: give it more in all"
            )
        child = self._running.pop(COLLAGE)
        try:
            answer = child.ask({"do": "prepare", "options": options}, left)
        except ChildError as err:
            row.failure = str(err)
            self._say(f"{COLLAGE}: {err}")
            return {}
        finally:
            child.close()
        row.figures.update({k: v for k, v in answer.items() if k != "bundles"})
        for name, reason in answer["failures"].items():
            self.rows.setdefault(name, Row(name)).failure = reason
        bundles: dict[str, str] = answer["bundles"]
        (self._work / "bundles.json").write_text(json.dumps(bundles), encoding="utf-8")
        self._say(f"{COLLAGE}: {row.failure or answer.get('chosen')}, {answer.get('search')}")
        return bundles

    def _load_peer(self, name: str) -> None:
        self.rows.setdefault(name, Row(name))
        self._load(name, self._prepare_until)

    def _load(self, name: str, until: float) -> None:
        """Start a contender, load it and keep its outputs."""
        row = self.rows[name]
        child = self._running.get(name) or self._child(name)
        self._running[name] = child
        if self._is_warm and name in self._plan.peers:
            row.figures["warm"] = True
        try:
            answer = child.ask({"do": "load"}, self._left(until))
            if "missing" in answer:
                row.failure, row.missing = answer["missing"], True
            else:
                row.figures.update(answer)
                path = self._work / f"{_file_name(name)}.npz"
                child.ask({"do": "outputs", "path": str(path)}, self._left(until))
                self._outputs[name] = _arrays(path)
        except ChildError as err:
            row.failure = str(err)
        self._say(f"{name}: {row.failure or 'loaded'}")
        if row.failure:
            child.close()

    def _load_ours(self, bundles: Mapping[str, str], pool: ThreadPoolExecutor) -> None:
        first: dict[str, str] = {}
        for name, folder in bundles.items():
            row = self.rows.setdefault(name, Row(name))
            row.same_as = first.get(folder, "")
            first.setdefault(folder, name)
        distinct = list(first.values())
        list(pool.map(lambda name: self._load(name, self._end), distinct))

    def _compare(self) -> None:
        reference = self._outputs["reference"]
        for name, outputs in self._outputs.items():
            if name == "reference":
                continue
            row = self.rows[name]
            try:
                row.difference = max_relative_difference(outputs, reference)
            except ValueError as err:
                row.failure = str(err)
                continue
            row.rms = rms_relative_difference(outputs, reference)
            row.fewest = min((output.size for output in reference), default=0)
            if row.difference > self._plan.wrong_difference:
                row.failure = f"wrong output: differs by {row.difference:.1e} of the largest value"

    def _rounds(self) -> None:
        order = random.Random(self._plan.seed)
        names = [n for n, row in self.rows.items() if not row.failure and n in self._running]
        request = {
            "do": "time",
            "turn_sec": self._plan.turn_sec,
            "samples": self._plan.samples,
        }
        self._say(
            f"{len(names)} contenders, {self._plan.rounds} rounds; {device.clocks(self._slot.gpu)}"
        )
        if self._plan.device == "cpu":
            for name in names:
                self._pause(name)
        for number in range(self._plan.rounds):
            if number >= 3 and time.monotonic() > self._end:
                self._say(f"out of time after {number} rounds")
                break
            for name in order.sample(names, len(names)):
                row = self.rows[name]
                if row.failure:
                    continue
                try:
                    answer = self._turn(self._running[name], request)
                except ChildError as err:
                    row.failure = str(err)
                    row.round_sec.clear()
                    self._running[name].close()
                    continue
                row.round_sec.append(answer["event_sec"])
                row.wall_sec.append(answer["wall_sec"])
        done = min(
            (len(self.rows[n].round_sec) for n in names if not self.rows[n].failure), default=0
        )
        for name in names:
            del self.rows[name].round_sec[done:], self.rows[name].wall_sec[done:]
        self._say(f"rounds done; {device.clocks(self._slot.gpu)}")

    def _pause(self, name: str) -> None:
        if not self.rows[name].failure:
            self._running[name].suspend()

    def _turn(self, child: JsonChild, request: Mapping[str, Any]) -> dict[str, Any]:
        """On the processor's cores a neighbour that waits for work spins: it is stopped."""
        if self._plan.device != "cpu":
            return child.ask(request, 60.0)
        child.resume()
        try:
            return child.ask(request, 60.0)
        finally:
            child.suspend()


def _arrays(path: Path) -> list[np.ndarray]:
    with np.load(path, allow_pickle=False) as arrays:
        return [arrays[name] for name in arrays.files]


def _file_name(engine: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in engine)
