"""The half of a host that times, on the one device that its process sees first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import (
    TargetError,
)
from collage.backends.devices import device_named
from collage.backends.toolchain import replacing
from collage.cost.deadline import Deadline
from collage.cost.device import policy_of
from collage.cost.engines.local import LocalEngine
from collage.cost.engines.ray.messages import (
    AnyOrder,
    HostSettings,
    ModelsOrder,
    RestOrder,
    RunOrder,
    WarmOrder,
)
from collage.cost.engines.ray.under_way import OrderUnderWay
from collage.cost.engines.shipping import unpack
from collage.cost.measure.engine import Work
from collage.cost.measure.runner import RunJob, RunResult
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, WholeModel
from collage.cost.progress import ProgressEvent
from collage.cost.reference import Sample


class Timing:
    """Times on the one device that this process sees first.

    Parameters
    ----------
    settings : HostSettings
        The device, and how to measure on it; no worker is started where the host builds.
    context : BuildContext
        Folders of this host.
    progress : callable
        Told of each turn of whole models.

    Raises
    ------
    TargetError
        When the device is not the one that the settings name.
    """

    def __init__(
        self,
        settings: HostSettings,
        context: BuildContext,
        progress: Callable[[ProgressEvent], None],
    ) -> None:
        self._settings, self._progress = settings, progress
        self._kept = context.work_dir / "kept"
        self._entry = OrderUnderWay()
        self._policy = policy_of(device_named(settings.kind))
        if settings.builds:
            return
        found = self._policy.all_here()[0]
        if found.device != settings.device:
            raise TargetError(
                f"the device is {found.device}, and not {settings.device}", value=found.device
            )
        self._index = found.index
        deadline = Deadline(lambda: self._entry.deadline.end)
        work = Work(self._policy, context, settings.config, deadline=deadline)
        self._workers = LocalEngine().open(work)
        self._runner = self._workers.places[0].runner

    def time(
        self, order: AnyOrder, files: Sequence[bytes], folder: Path, entry: OrderUnderWay
    ) -> list[RunResult]:
        """What an order to check, to time or to rest brings.

        Parameters
        ----------
        order : AnyOrder
            One of those that need the device.
        files : sequence of bytes
            What travelled with it: for one candidate the archive of its library and sample.
        folder : Path
            Empty, for those files.
        entry : OrderUnderWay
            Told when the work begins.

        Returns
        -------
        list of RunResult
            One for a candidate, one for each of several models, none for any other order.
        """
        self._entry = entry
        entry.work()
        match order:
            case RunOrder():
                return [self._run(order, files, folder, entry)]
            case ModelsOrder():
                return self._compare(order, entry)
            case WarmOrder():
                self._runner.warm_up()
            case RestOrder():
                self._workers.close()
        return []

    def _run(
        self, order: RunOrder, files: Sequence[bytes], folder: Path, entry: OrderUnderWay
    ) -> RunResult:
        limit = self._settings.config.memory_limit_bytes
        places = [folder / str(index) for index in range(len(files))]
        for archive, place in zip(files, places, strict=True):
            unpack(archive, place, limit)
        job = RunJob(places[0] / order.library, places[-1])
        return self._runner.run_sharing(job, lambda: entry.holding(self._policy.kind, self._index))

    def _compare(self, order: ModelsOrder, entry: OrderUnderWay) -> list[RunResult]:
        samples = [Sample.load(self._kept / digest) for digest in order.samples]
        models = [WholeModel(model.key, model.description, ()) for model in order.models]
        question = EndToEndQuestion(models, samples, order.rounds, order.provisional)
        libraries = [self._kept / model.archive / model.library for model in order.models]
        # Two processes of this host must not be at work on one device.
        self._runner.close()
        with entry.holding(self._policy.kind, self._index):
            return self._workers.timer(self._progress).measure(question, libraries, entry.deadline)

    def others(self, entry: OrderUnderWay) -> str:
        with entry.holding(self._policy.kind, self._index):
            return self._runner.others()

    def lacks(self, digests: Sequence[str]) -> list[str]:
        return [digest for digest in digests if not (self._kept / _plain(digest)).is_dir()]

    def keep(self, digest: str, archive: bytes, limit_bytes: int) -> None:
        """Unpack an archive to where later orders find it, unless it is there.

        Parameters
        ----------
        digest : str
            What it is called by.
        archive : bytes
            Made by :func:`~collage.cost.engines.shipping.pack`.
        limit_bytes : int
            What it may unpack to.
        """
        place = self._kept / _plain(digest)
        if not place.is_dir():
            with replacing(place) as partial:
                unpack(archive, partial, limit_bytes)

    def close(self) -> None:
        if not self._settings.builds:
            self._workers.close()


def _plain(digest: str) -> str:
    if not digest.isalnum():
        raise TargetError(f"'{digest}' is no digest", value=digest)
    return digest
