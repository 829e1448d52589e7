"""TVM's own code generator as a backend: partitions become scheduled tensor programs."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
import tvm_ffi
from tvm.target import codegen

from collage.backends.base import (
    Availability,
    BackendTarget,
    BuildContext,
    NativeBackend,
    PatternTriple,
)
from collage.backends.tvm.lower import lower_module
from collage.backends.tvm.options import TVMOptions
from collage.backends.tvm.schedules import Machine


class TVMBackend(NativeBackend):
    """Runs every operator that TVM can legalize, through LLVM."""

    name = "tvm"
    device = "cpu"
    options_type = TVMOptions

    def probe(self) -> Availability:
        """Always usable: TVM is what this project stands on."""
        return Availability(
            usable=True,
            versions={
                "apache-tvm": str(tvm.__version__),
                "apache-tvm-ffi": str(tvm_ffi.__version__),
                "llvm": str(codegen.llvm_version_major()),
            },
        )

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        """None: its candidates come from operator kinds, not from patterns."""
        return ()

    def lower(
        self, mod: tvm.IRModule, target: BackendTarget, context: BuildContext
    ) -> tvm.IRModule:
        """Replace this backend's partitions, and operators left in ``main``, by scheduled kernels.

        Parameters
        ----------
        mod : tvm.IRModule
            ``main`` calls private functions with the attribute ``PARTITION_ATTR`` and functions
            with a ``Codegen`` attribute; the latter stay as they are.
        """
        options: TVMOptions = target.options
        machine = Machine.of_target(target.device, context.num_threads)
        return lower_module(mod, target.device, machine, options.schedule)


def backend() -> TVMBackend:
    """The instance that the registry keeps."""
    return TVMBackend()
