"""Targets and workloads as messages between a search and its processes."""

from __future__ import annotations

from typing import Any

import tvm

from collage.backends.contract import BackendTarget
from collage.backends.relax.tensor_spec import TensorSpec
from collage.cost.processes.protocol import Message
from collage.cost.workload.data import DataSpec
from collage.cost.workload.module_text import from_text, to_text
from collage.cost.workload.workload import Workload


class TargetMessage(Message, frozen=True):
    """A backend target: its options as plain values, its device as TVM writes it."""

    backend: str
    options: dict[str, Any]
    device: str
    alias: str = ""

    @classmethod
    def of(cls, target: BackendTarget) -> TargetMessage:
        """The message that says it."""
        return cls(target.backend, target.option_dict(), str(target.device), target.alias)

    def target(self) -> BackendTarget:
        """What it says.

        Raises
        ------
        TargetError
            When this process has no such backend, or it has no such options.
        """
        device = tvm.target.Target(self.device)
        return BackendTarget.of(self.backend, device, self.options, self.alias)


class WorkloadMessage(Message, frozen=True):
    """A workload: its module as TVM writes it."""

    module: str
    constants: tuple[DataSpec, ...]
    inputs: tuple[TensorSpec, ...]
    bounds: tuple[int | None, ...]
    outputs: tuple[TensorSpec, ...]
    key: str

    @classmethod
    def of(cls, workload: Workload) -> WorkloadMessage:
        """The message that says it."""
        return cls(
            to_text(workload.module),
            workload.constants,
            workload.inputs,
            workload.bounds,
            workload.outputs,
            workload.key,
        )

    def workload(self) -> Workload:
        """What it says."""
        return Workload(
            from_text(self.module),
            self.constants,
            self.inputs,
            self.bounds,
            self.outputs,
            self.key,
        )
