"""The contract every backend keeps: what it can run, with which options, and how it compiles it.

A backend is one instance of :class:`ExternalBackend` (brings a library; Relax BYOC code generation)
or :class:`NativeBackend` (compiles through TVM itself what no other takes). Third parties subclass
the former, or :class:`~collage.backends.contract.TensorBackend` on top of it, see ``examples/``.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import tvm
from tvm import relax

from collage.backends.contract.context import BuildContext
from collage.backends.contract.digest.sources import source_digest
from collage.backends.contract.kernels import Precision, Roofline
from collage.backends.contract.options import NoOptions, parse_options
from collage.backends.contract.patterns import PatternTriple
from collage.backends.contract.requirements import Availability
from collage.backends.contract.target import BackendTarget

PARTITION_ATTR = "collage.backend"
"""Function attribute that names the native backend of a partition function."""

TARGET_ATTR = "collage.target"
"""Function attribute that names the target, where that is not called as its backend is."""


class Granularity(enum.Enum):
    """How far a backend may join its composites into one partition.

    Examples
    --------
    >>> from collage.backends.contract import get_backend
    >>> [get_backend(name).granularity.value for name in ("onednn", "openblas")]
    ['graph', 'operator']
    """

    OPERATOR = "operator"
    """Every composite is a partition of its own."""
    GRAPH = "graph"
    """Adjacent composites may be joined into one region."""


class Backend(ABC):
    """What every backend has; subclass :class:`ExternalBackend` or ``NativeBackend``.

    Examples
    --------
    >>> from collage.backends.contract import get_backend
    >>> onednn = get_backend("onednn")
    >>> onednn.device, onednn.granularity.value, onednn.parse_options({"layout": "nhwc"})
    ('cpu', 'graph', OnednnOptions(layout='nhwc', precision='float32', winograd=True))
    """

    name: ClassVar[str]
    device: ClassVar[str] = "cpu"
    """``cpu`` or ``cuda``: the device kind that this backend refines."""
    granularity: ClassVar[Granularity] = Granularity.OPERATOR
    options_type: ClassVar[type] = NoOptions
    codegen_version: ClassVar[str] = "1"
    """To be raised when it builds something else for a reason that none of its sources shows."""
    sources: ClassVar[Sequence[Path]] = ()
    """Files that decide what it builds and that neither its package nor its imports lead to."""

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

    def precision(self, options: Any) -> Precision:
        """How float32 tensors are computed with: how closely results must agree follows from it."""
        return Precision.FLOAT32

    def stored_as(self, options: Any) -> Precision:
        """What float32 values are computed in that no operator rounds to bytes.

        Parameters
        ----------
        options : object
            An instance of ``options_type``.
        """
        precision = self.precision(options)
        return Precision.FLOAT32 if precision is Precision.INT8 else precision

    def precisions(self) -> Mapping[Precision, Mapping[str, Any]]:
        """The fewer digits that it can compute float32 tensors with where an error is allowed, and
        the attributes that make it; what a processor has no instructions for it refuses."""
        return {}

    def roofline(self, device: tvm.target.Target) -> Roofline:
        """The share of a device's limits that its kernels typically reach."""
        return Roofline()

    def source_digest(self) -> str:
        """A digest of everything of its own that decides what it builds; keys of records have it.

        Raises
        ------
        TargetError
            When its class was not read from a file.
        """
        return source_digest(type(self), self.codegen_version, self.sources)


class ExternalBackend(Backend):
    """A backend with its own code generator, reached as Relax BYOC's ``relax.ext.<name>``.

    Examples
    --------
    >>> from tvm.relax.dpl import is_op, wildcard
    >>> class Silu(ExternalBackend):
    ...     name = "silu"
    ...     def probe(self):
    ...         return Availability(True, {"silu": "1.0"})
    ...     def patterns(self, target):
    ...         return [PatternTriple("silu.silu", is_op("relax.nn.silu")(wildcard()))]
    ...     def codegen(self, functions, target, context):
    ...         return []  # One static library, as collage.backends.toolchain makes it.
    >>> Silu().granularity, Silu().constants_as_arguments
    (<Granularity.OPERATOR: 'operator'>, False)
    """

    constants_as_arguments: ClassVar[bool] = False
    """Whether constants of more than one element reach the functions as trailing parameters.

    TVM's virtual machine then puts each distinct constant into device memory once, for all.
    """

    aligned_weights: ClassVar[bool] = False
    """Whether every pattern's code generator takes a ``permute_dims`` of constant weights for a
    layout. Weights whose rows no wide load can take then reach it by columns."""

    own_threads: ClassVar[bool] = False
    """Whether its library runs on threads of its own, not on those of OpenMP that the others share.
    It then tells them itself what becomes of denormal numbers (``context.ieee_denormals``)."""

    @abstractmethod
    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
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


class NativeBackend(Backend):
    """A backend that compiles through TVM: its partitions become scheduled tensor programs.

    Examples
    --------
    >>> from collage.backends.contract import get_backend
    >>> isinstance(get_backend("tvm"), NativeBackend)
    True
    """

    @abstractmethod
    def lower(
        self, mod: tvm.IRModule, target: BackendTarget, context: BuildContext
    ) -> tvm.IRModule:
        """Replace the calls to this backend's partition functions by calls to scheduled PrimFuncs.

        Parameters
        ----------
        mod : tvm.IRModule
            Partition functions of this backend carry the attribute ``PARTITION_ATTR`` with its
            name.
        target : BackendTarget
            With this backend's options.
        context : BuildContext
            Where to build, and with how many threads to run.

        Returns
        -------
        IRModule
            Partitions of other backends are as they were.
        """

    def last_resort(self, target: BackendTarget) -> BackendTarget | None:
        """A target of this backend that computes slowly what the given one cannot compute at all.

        Parameters
        ----------
        target : BackendTarget
            With this backend's options.

        Returns
        -------
        BackendTarget or None
            Its partitions stand beside those of ``target`` in one module. None where there is
            nothing simpler than ``target`` itself.
        """
        return None

    def partition_attributes(self, options: Any) -> dict[str, str]:
        """What the partition functions of a target carry that the module's target does not say."""
        return {}
