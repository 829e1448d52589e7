"""The device that costs are measured on, or were."""

from __future__ import annotations

from collage.backends.contract import TargetSet
from collage.backends.contract.errors import TargetError
from collage.cost.device import Device, policy_of
from collage.cost.device.recorded import recorded_device
from collage.cost.models.measured import MeasuredCostModel
from collage.pipeline.session import Session


def replayed_device(session: Session) -> Device | None:
    """The log's device in a replay where there is none like it; None where devices are asked.

    Raises
    ------
    ReplayMissError, LogError
        When the log is of no such device, or of several.
    """
    targets = session.targets
    arch = targets.device.architecture(targets.native.device)
    if session.replay and targets.device.unfit(arch):
        return recorded_device(session.database.devices(), arch)
    return None


def measured_device(model: MeasuredCostModel, targets: TargetSet) -> Device:
    """What a model measures on, wherever that is: it runs what is compiled for the targets.

    Parameters
    ----------
    model : MeasuredCostModel
        Its workers are found.
    targets : TargetSet
        What is compiled for.

    Returns
    -------
    Device
        That of the workers, as they describe it.

    Raises
    ------
    TargetError
        When the workers have no such device, or one of another architecture.
    """
    kind = targets.device
    try:
        device = model.device(targets)
    except TargetError as err:
        if kind.is_here():
            raise
        raise TargetError(
            f"{err}; to compile on estimated costs, give cost_model=RooflineCostModel(), on the "
            "command line --estimate",
            value=err.value,
        ) from err
    if reason := policy_of(kind).misfit(kind.architecture(targets.native.device), device):
        raise TargetError(reason, value=str(targets.native.device))
    return device
