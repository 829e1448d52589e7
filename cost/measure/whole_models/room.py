"""How much memory the models of a contest may hold at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import psutil

from collage.backends.devices import DeviceKind
from collage.cost.measure.whole_models.model_timer import WholeModel

_WEIGHTS = 3
_BESIDES = 1 << 30
"""All processes of a search together are to hold three times the weights and a gibibyte at the
most."""

_SHARED = 128 << 20
"""What processes share with each other: libraries, and the server that they are forks of."""

_PROCESS = 56 << 20
"""Of a model's process, besides what the model holds."""


def needs_of(models: Sequence[WholeModel]) -> list[int]:
    """Bytes that each model's process holds between two turns.

    Examples
    --------
    >>> needs_of([WholeModel("5f1c", "all tvm", (), held_bytes=8 << 20)])
    [67108864]
    """
    return [model.held_bytes + _PROCESS for model in models]


def room_for(models: Sequence[WholeModel], kind: DeviceKind) -> float:
    """Bytes for all models that are in memory at once.

    Parameters
    ----------
    models : sequence of WholeModel
        Variants of one model.
    kind : DeviceKind
        Of the device.

    Returns
    -------
    float
        Infinite where nobody knows what they hold, and where most of that is a device's own.
    """
    weights = max((model.weights_bytes for model in models), default=0)
    if not weights or kind.compiles_beside:
        return math.inf
    held = psutil.Process().memory_info()
    own = int(held.rss) - int(getattr(held, "shared", 0))
    # Whoever is loaded reads all of its weights once.
    return float((_WEIGHTS - 1) * weights + _BESIDES - _SHARED - own)
