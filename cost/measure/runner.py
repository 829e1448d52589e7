"""The runner's contract: check a library and time it, whatever it does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from collage.backends.contract.errors import MeasurementError
from collage.cost.base import Clocks, Cost
from collage.cost.call_times import CallTime
from collage.cost.contest import ContestRule, Load, Played, Rounds, play, shuffled


@dataclass(frozen=True)
class RunJob:
    """A linked library and its test data.

    Attributes
    ----------
    library : Path
        Its ``main`` is called; what it needs lies in ``lib/`` beside it.
    sample : Path
        Folder of a :class:`collage.cost.reference.Sample`: inputs, and what must come out.

    Examples
    --------
    >>> RunJob.in_folder(Path("work/0")).library
    PosixPath('work/0/model.so')
    """

    library: Path
    sample: Path

    @classmethod
    def in_folder(cls, folder: Path) -> RunJob:
        """The files that a build leaves in its folder."""
        return cls(folder / "model.so", folder)


@dataclass(frozen=True)
class RunResult:
    """A cost, and what else was seen.

    Attributes
    ----------
    cost : Cost
        Valid only when the outputs agree with the expected ones, before and after timing.
    largest_error : float
        Relative to the largest value of an output; 0 when nothing was compared.
    first_call_sec : float
        The call that makes primitives and packs weights.
    run_sec : float
        Wall time of it all, waiting for the device not included.
    clocks : Clocks or None
        Of a CUDA device, where they can be read.
    rounds : Rounds or None
        Of a whole model that was timed against others.
    calls : tuple of CallTime
        Those inside a whole model, in their order; none where they cannot be seen.

    Examples
    --------
    >>> RunResult(Cost.of_samples([1e-6]), largest_error=2e-7).cost.is_valid
    True
    """

    cost: Cost
    largest_error: float = 0.0
    first_call_sec: float = 0.0
    run_sec: float = 0.0
    clocks: Clocks | None = None
    rounds: Rounds | None = None
    calls: tuple[CallTime, ...] = ()


ExclusiveDevice = Callable[[], AbstractContextManager[None]]
"""Gives a context in which no other process measures on the device; entering it may take long."""


@dataclass(frozen=True)
class PlayedTogether:
    """Libraries that were timed in the same rounds.

    Attributes
    ----------
    played : Played
        A row for each.
    failures : tuple of Cost or None
        By library, why it is out; None for those that are right throughout.

    Examples
    --------
    >>> played = Played(table=((1e-3, 1e-3),), loads=(Load(0.0, 1.0),) * 2)
    >>> PlayedTogether(played, (None,)).failures
    (None,)
    """

    played: Played
    failures: tuple[Cost | None, ...]


class PlaceLostError(MeasurementError):
    """The device or the machine that a runner times on is gone: nothing is said of a candidate.

    Whoever asked has it timed elsewhere.
    """


class PlaceAwayError(PlaceLostError):
    """There was no device to begin with: what was asked had no part in that."""


class Runner(ABC):
    """Times one library at a time on one device.

    :class:`collage.testing.RunnerContract` is a suite for any of them.

    Examples
    --------
    >>> class Size(Runner):
    ...     def run(self, job):  # One byte takes a second.
    ...         return RunResult(Cost.of_samples([job.library.stat().st_size]))
    ...     def close(self):
    ...         pass
    >>> size = Path("model.so").write_bytes(bytes(1000))
    >>> Size().run(RunJob.in_folder(Path("."))).cost.median_sec
    1000.0
    """

    @abstractmethod
    def run(self, job: RunJob) -> RunResult:
        """Check and time a library.

        A library that crashes, hangs, takes too much memory or computes a wrong result gives an
        invalid cost with a one-line reason; the runner stays usable. An unknown cost says that
        others killed whoever ran it, again and again, and nothing of the library.

        Raises
        ------
        MeasurementError
            When measuring itself is impossible: no worker can be started.
        PlaceLostError
            When it is impossible here only.
        """

    def run_sharing(self, job: RunJob, exclusive: ExclusiveDevice) -> RunResult:
        """As :meth:`run`, on a device that other processes measure on too.

        The device is held for all of it, unless a runner knows better: others wait that long.

        Parameters
        ----------
        job : RunJob
            What to check and time.
        exclusive : callable
            Gives the context in which to time it; nothing else is to be in it.

        Returns
        -------
        RunResult
            As :meth:`run` gives it.
        """
        with exclusive():
            return self.run(job)

    def play(
        self, jobs: Sequence[RunJob], rule: ContestRule, seed: str, exclusive: ExclusiveDevice
    ) -> PlayedTogether:
        """Time libraries against each other, in rounds, each in another order.

        One turn is one :meth:`run`, unless a runner knows better.

        Parameters
        ----------
        jobs : sequence of RunJob
            Which were all run alone before.
        rule : ContestRule
            Who plays the next round.
        seed : str
            Of the order.
        exclusive : callable
            As :meth:`run_sharing` takes it.

        Returns
        -------
        PlayedTogether
            A row for each job.

        Raises
        ------
        MeasurementError, PlaceLostError
            As :meth:`run`.
        """
        stage = _OneByOne(self, jobs, exclusive)
        played = play(stage, len(jobs), rule, watchful=False, order=shuffled(seed))
        return PlayedTogether(played, tuple(stage.failures))

    def warm_up(self) -> None:  # noqa: B027 (nothing to do is a good answer)
        """Start what running needs, without waiting for it."""

    def others(self) -> str:
        """What computes on the device that nobody measures on; empty when nothing does, or when it
        cannot be told. The device is held meanwhile."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """End what this runner started; the next run starts anew."""


class _OneByOne:
    """The stage of those who cannot keep what they have run: each turn begins anew."""

    def __init__(self, runner: Runner, jobs: Sequence[RunJob], exclusive: ExclusiveDevice) -> None:
        self._runner, self._jobs, self._exclusive = runner, jobs, exclusive
        self.failures: list[Cost | None] = [None] * len(jobs)

    def turn(self, player: int, number: int) -> float | None:
        cost = self._runner.run_sharing(self._jobs[player], self._exclusive).cost
        if not cost.is_valid:
            self.failures[player] = cost
            return None
        return cost.median_sec

    def is_out(self, player: int) -> bool:
        return self.failures[player] is not None

    def is_cut_short(self) -> bool:
        return False

    def load(self) -> Load:
        return Load(others=0.0, idle=1.0)  # It is another machine's, as far as one knows.
