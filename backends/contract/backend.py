"""The contract every backend keeps: what it can run, with which options, and how it compiles it.

A backend is one instance of :class:`ExternalBackend` (brings a library; Relax BYOC code generation)
or :class:`NativeBackend` (compiles through TVM itself). Third parties subclass the former, see
``examples/``.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import tvm
from tvm import relax

from collage.backends.contract.context import BuildContext
from collage.backends.contract.options import NoOptions, parse_options
from collage.backends.contract.patterns import PatternTriple, Verdict
from collage.backends.contract.requirements import Availability, LibraryRequirement
from collage.backends.contract.target import BackendTarget

if TYPE_CHECKING:
    from collage.backends.toolchain.native import Compilation

PARTITION_ATTR = "collage.backend"
"""Function attribute that names the native backend of a partition function."""


class Granularity(enum.Enum):
    """How far a backend may join its composites (DESIGN: operator or graph)."""

    OPERATOR = "operator"
    """Every composite is a partition of its own."""
    GRAPH = "graph"
    """Adjacent composites may be joined into one region."""


class Backend(ABC):
    """What every backend has; subclass :class:`ExternalBackend` or ``NativeBackend``."""

    name: ClassVar[str]
    device: ClassVar[str] = "cpu"
    """``cpu`` or ``cuda``: the device kind that this backend refines."""
    granularity: ClassVar[Granularity] = Granularity.OPERATOR
    options_type: ClassVar[type] = NoOptions

    @abstractmethod
    def probe(self) -> Availability:
        """Whether the library is here, its versions, or the reason and the line that mends it."""

    @abstractmethod
    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        """The pattern table; later entries have a higher priority."""

    def parse_options(self, attributes: Mapping[str, Any]) -> Any:
        """Turn a target's attributes into this backend's options.

        Raises
        ------
        TargetError
            On an unknown attribute (the valid ones are listed) or a value of the wrong type.
        """
        return parse_options(self.name, self.options_type, attributes)


class ExternalBackend(Backend):
    """A backend with its own code generator, reached as Relax BYOC's ``relax.ext.<name>``."""

    constants_as_arguments: ClassVar[bool] = False
    """Whether constants of more than one element reach the functions as trailing parameters.

    TVM's virtual machine then puts each distinct constant into device memory once, for all.
    """

    aligned_weights: ClassVar[bool] = False
    """Whether every pattern's code generator takes a ``permute_dims`` of constant weights for a
    layout. Weights whose rows no wide load can take then reach it by columns."""

    def accepts_region(self, operators: Sequence[relax.Expr], target: BackendTarget) -> Verdict:
        """Whether operators that the patterns accepted one by one may be a partition together.

        Asked whenever composites form a partition, a single one included.

        Parameters
        ----------
        operators : sequence of relax.Expr
            The values of the partition's bindings, in topological order.
        """
        return Verdict.yes()

    def refusals(
        self,
        functions: Sequence[relax.Function],
        target: BackendTarget,
        context: BuildContext,
    ) -> Mapping[str, str]:
        """Which functions the library would refuse to compile, by symbol with its reason.

        Asked before whole models are compiled; refused partitions are undone and run by TVM. For a
        backend whose library alone can tell: work done here is expected to be kept for
        :meth:`codegen`.
        """
        return {}

    @abstractmethod
    def codegen(
        self,
        functions: Sequence[relax.Function],
        target: BackendTarget,
        context: BuildContext,
    ) -> list[tvm.runtime.Module]:
        """Compile every function of this backend in one IRModule.

        Parameters
        ----------
        functions : sequence of relax.Function
            Each has a ``global_symbol`` and ``Codegen`` attribute; its body calls ``Composite``
            functions. Called destination-passing: the inputs, then one tensor per output.
        target : BackendTarget
            With this backend's options.
        context : BuildContext
            Where to build, and with how many threads to run.

        Returns
        -------
        list of tvm.runtime.Module
            Static libraries (``tvm.runtime.load_static_library``) that export one TVM FFI symbol
            per function.

        Raises
        ------
        CodegenError
            When a function cannot be compiled after all: the candidate is then recorded as invalid.
        """

    def compilations(self, target: BackendTarget, context: BuildContext) -> Sequence[Compilation]:
        """What :meth:`codegen` compiles whatever the functions are, such as a runtime.

        Begun in the background when a search begins. Optional: :meth:`codegen` compiles what is not
        there, and what fails is reported there.
        """
        return ()

    def shared_libraries(self, target: BackendTarget) -> Sequence[Path]:
        """Shared libraries to link against and to ship in the bundle's ``lib/``."""
        return ()

    def required_libraries(self, target: BackendTarget) -> Sequence[LibraryRequirement]:
        """Shared libraries to link against that are too large or too bound to a driver to ship.

        The bundle's manifest lists them; loading finds them, or names what is missing.
        """
        return ()

    def cuda_graph_safe(self, target: BackendTarget) -> bool:
        """Whether its entry points may be captured into a CUDA graph after one call."""
        return True

    def runtime(self, target: BackendTarget) -> str:
        """What besides the linked library runs its partitions; empty when nothing does.

        The bundle's manifest has it, and loading hands it to :meth:`load_runtime`.
        """
        return ""

    def load_runtime(self, name: str) -> None:
        """Make ready what :meth:`runtime` named, before a library is loaded.

        Raises
        ------
        BackendUnavailableError
            When it is not installed here.
        """


class NativeBackend(Backend):
    """A backend that compiles through TVM: its partitions become scheduled tensor programs."""

    @abstractmethod
    def lower(
        self, mod: tvm.IRModule, target: BackendTarget, context: BuildContext
    ) -> tvm.IRModule:
        """Replace the calls to this backend's partition functions by calls to scheduled PrimFuncs.

        Partition functions of this backend carry the attribute ``PARTITION_ATTR`` with its name.
        """
