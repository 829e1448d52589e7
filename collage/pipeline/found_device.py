"""The device that costs are measured on, or were."""

from __future__ import annotations

from collage.backends.contract import TargetSet
from collage.backends.contract.errors import TargetError
from collage.cost.device import Device, policy_of
from collage.cost.device.recorded import recorded_device
from collage.pipeline.session import Session


def find_device(session: Session) -> Device:
    """The device here that costs are measured on; in a replay where there is none, the log's.

    Parameters
    ----------
    session : Session
        Targets and log.

    Raises
    ------
    TargetError
        When there is none.
    ReplayMissError, LogError
        In a replay, when the log is of no such device, or of several.
    """
    targets = session.targets
    arch = targets.device.architecture(targets.native.device)
    if session.replay and targets.device.unfit(arch):
        return recorded_device(session.database.records(), arch)
    return _measured_device(targets)


def _measured_device(targets: TargetSet) -> Device:
    """The device here that costs are measured on.

    Raises
    ------
    TargetError
        When there is none.
    """
    if not targets.device.is_here():
        raise TargetError(
            "there is no GPU here to measure on; to compile on estimated costs, give "
            "cost_model=RooflineCostModel(), on the command line --estimate",
            value=str(targets.native.device),
        )
    return policy_of(targets.device).detect()
