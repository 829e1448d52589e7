"""What a search and its hosts on other machines say to each other; files travel beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.device import Device
from collage.cost.measure.engine import WorkerInfo
from collage.cost.measure.runner import RunResult
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion
from collage.cost.processes.described import TargetMessage, WorkloadMessage
from collage.cost.processes.protocol import PROTOCOL, Message
from collage.cost.progress import ProgressEvent


class Probe(Message, frozen=True):
    """What a node says of itself: one entry for each device, or one that says why there is none."""

    found: tuple[WorkerInfo, ...]

    def named(self, name: str, address: str) -> list[WorkerInfo]:
        """The entries, as the cluster calls the node.

        Parameters
        ----------
        name : str
            The node's.
        address : str
            Where it is.

        Returns
        -------
        list of WorkerInfo
            One for each device that was found, in the same order.
        """
        return [replace(info, name=f"{name} {info.name}", address=address) for info in self.found]


class HostSettings(Message, frozen=True):
    """What a host is started for.

    Attributes
    ----------
    kind : str
        Of the device.
    num_threads, cxx, ieee_denormals, replay, hurried
        As :class:`~collage.backends.contract.BuildContext` has them; folders are the host's own.
    builds : int
        Candidates to compile at the same time; 0 for a host that times.
    device : Device
        What it must time on.
    """

    kind: str
    config: MeasureConfig
    num_threads: int
    cxx: str
    ieee_denormals: bool
    replay: bool
    hurried: bool
    builds: int
    device: Device
    protocol: int = PROTOCOL


class Order(Message, frozen=True, tag_field="order"):
    """What a host is to do."""


class BuildOrder(Order, frozen=True, tag="build"):
    """Compile a workload; answered by :class:`BuildReply`, with its files.

    Attributes
    ----------
    findings : tuple of str
        Lines of the head's log that concern the target, as far as this host lacks them.
    """

    workload: WorkloadMessage
    target: TargetMessage
    plugins: tuple[str, ...]
    findings: tuple[str, ...]


class RunOrder(Order, frozen=True, tag="run"):
    """Check and time a library, which comes along, and its test data, which comes along too unless
    it is the same folder; answered by :class:`RunReply`."""

    library: str


class WarmOrder(Order, frozen=True, tag="warm"):
    """Start what timing needs; answered by :class:`RunReply`."""


class RestOrder(Order, frozen=True, tag="rest"):
    """End what timing started; answered by :class:`RunReply`."""


class OthersOrder(Order, frozen=True, tag="others"):
    """Say what else computes on the device; answered by :class:`OthersReply`."""


class ShippedModel(Message, frozen=True):
    """A whole model: its key in the log, its name, and its library in an archive of that digest."""

    key: str
    description: str
    archive: str
    library: str


class ModelsOrder(Order, frozen=True, tag="models"):
    """Time whole models against each other; answered by :class:`RunReply`.

    Attributes
    ----------
    samples : tuple of str
        Digests of archives.
    """

    models: tuple[ShippedModel, ...]
    samples: tuple[str, ...]
    rounds: int
    provisional: bool

    @classmethod
    def of(
        cls,
        question: EndToEndQuestion,
        libraries: Sequence[tuple[str, str]],
        samples: Sequence[str],
    ) -> ModelsOrder:
        """The order that a question makes.

        Parameters
        ----------
        question : EndToEndQuestion
            What is asked.
        libraries : sequence of (str, str)
            Of each model, the digest of an archive and a name in it.
        samples : sequence of str
            Digests of archives.

        Returns
        -------
        ModelsOrder
            With a model for each of the question's, in the same order.
        """
        models = tuple(
            ShippedModel(model.key, model.description, *library)
            for model, library in zip(question.models, libraries, strict=True)
        )
        return cls(models, tuple(samples), question.rounds, question.provisional)


AnyOrder = BuildOrder | RunOrder | WarmOrder | RestOrder | OthersOrder | ModelsOrder


class Reply(Message, frozen=True, tag_field="reply"):
    """What came of an order."""


class BuildReply(Reply, frozen=True, tag="built"):
    """A workload was compiled, and its files come along; or it was not, and why.

    Attributes
    ----------
    findings : tuple of str
        Lines for the head's log that were found out meanwhile.
    """

    status: CostStatus
    reason: str
    build_sec: float
    findings: tuple[str, ...]


class RunReply(Reply, frozen=True, tag="ran"):
    """One result for each library."""

    results: tuple[RunResult, ...]


class OthersReply(Reply, frozen=True, tag="others"):
    """As :meth:`Runner.others` has it."""

    others: str


class TimeIsUp(Reply, frozen=True, tag="time_is_up"):
    """It was given up because the head said so."""


class WorkerFailure(Reply, frozen=True, tag="worker_failure"):
    """It could not be done here, which says nothing of a candidate."""

    reason: str


AnyReply = BuildReply | RunReply | OthersReply | TimeIsUp | WorkerFailure


class Heartbeat(Message, frozen=True):
    """A sign of life.

    Attributes
    ----------
    working : dict of str to float
        Seconds that each order has been worked on, by its number; waiting for the device does
        not count.
    progress : tuple of ProgressEvent
        What there was to tell since the last one.
    """

    working: dict[str, float]
    progress: tuple[ProgressEvent, ...]
