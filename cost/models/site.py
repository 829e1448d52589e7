"""Where targets of one kind of device are measured, by whom, and under which keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collage.cost.database.keys import KeyMaker
from collage.cost.device import Device
from collage.cost.measure.engine import Engine, Work
from collage.cost.measure.replay import MeasureStats, RecordLookup
from collage.cost.measure.scheduler import Measurer
from collage.cost.models.together import Together
from collage.cost.models.whole_models import WholeModels
from collage.cost.progress import ProgressCallback


@dataclass(frozen=True)
class Site:
    """A kind of device, and who asks what of it.

    Attributes
    ----------
    device : Device
        Measured on.
    keys : KeyMaker
        Of everything measured there.
    measurer : Measurer
        Measures candidates one by one.
    whole, together
        Whole models, and candidates in the same rounds.
    """

    device: Device
    keys: KeyMaker
    measurer: Measurer
    whole: WholeModels
    together: Together

    @classmethod
    def opened(
        cls,
        engine: Engine,
        work: Work,
        lookup: RecordLookup,
        stats: MeasureStats,
        progress: ProgressCallback,
        plugins: Sequence[str],
        *,
        replay_only: bool,
    ) -> Site:
        """A site whose workers start when they are needed.

        Parameters
        ----------
        engine, work
            Who works, and on what.
        lookup : RecordLookup
            Asked first.
        stats : MeasureStats
            Counts what was measured.
        progress : callable
            Told of it.
        plugins : sequence of str
            Third parties' backends, for the workers.
        replay_only : bool
            Whether nothing is measured.

        Returns
        -------
        Site
            With nothing running yet.
        """
        measurer = Measurer(engine, work, lookup, stats, progress, plugins)
        keys = KeyMaker(work.context, work.config, measurer.device)
        asked = (lookup, keys, measurer, replay_only, work.deadline)
        return cls(measurer.device, keys, measurer, WholeModels(*asked), Together(*asked))
