"""The part of the contract for a backend that compiles through TVM itself."""

from __future__ import annotations

from abc import abstractmethod

import tvm

from collage.backends.contract.base import Backend, BackendTarget, BuildContext

PARTITION_ATTR = "collage.backend"
"""Function attribute that names the native backend of a partition function."""


class NativeBackend(Backend):
    """A backend that compiles through TVM: its partitions become scheduled tensor programs."""

    @abstractmethod
    def lower(
        self, mod: tvm.IRModule, target: BackendTarget, context: BuildContext
    ) -> tvm.IRModule:
        """Replace the calls to this backend's partition functions by calls to scheduled PrimFuncs.

        Partition functions of this backend carry the attribute ``PARTITION_ATTR`` with its name.
        """
