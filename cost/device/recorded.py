"""The device that a log was made on, for a replay on a machine that has none like it."""

from __future__ import annotations

from collections.abc import Iterable

from collage.backends.contract.errors import LogError, ReplayMissError
from collage.backends.toolchain.cuda_toolkit import compute_capability
from collage.cost.device import POLICIES, Device


def recorded_device(places: Iterable[tuple[str, str]], arch: str) -> Device:
    """The one GPU of an architecture that measurements of a log were made on.

    Parameters
    ----------
    places : iterable of (str, str)
        Device and driver of the log's keys, as
        :meth:`~collage.cost.database.Database.devices` gives them.
    arch : str
        For example ``sm_90a``.

    Returns
    -------
    Device
        As the log's keys describe it.

    Raises
    ------
    ReplayMissError
        When the log holds no measurement of such a GPU.
    LogError
        When it holds measurements of several: which of them to replay is not for us to say.
    """
    features = f"sm_{compute_capability(arch)}"
    found = {
        device: place
        for place in places
        for policy in POLICIES
        if (device := policy.device_from_key(*place)) and device.features == features
    }
    if not found:
        raise ReplayMissError(
            f"there is no GPU of architecture {arch} here, and the log holds no measurement of one",
            value=arch,
        )
    if len(found) > 1:
        texts = "; ".join(f"{key}, driver {driver}" for key, driver in found.values())
        raise LogError(
            f"the log holds measurements of several GPUs of architecture {arch} ({texts}), and "
            "none is here; replay a log of one of them",
            value=list(found),
        )
    return next(iter(found))
