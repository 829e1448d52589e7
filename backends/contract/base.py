"""The contract every backend keeps: what it can run, with which options, and how it compiles it.

A backend is one instance of :class:`ExternalBackend` (brings a library; Relax BYOC code generation)
or :class:`~collage.backends.contract.native.NativeBackend` (compiles through TVM itself). Third
parties subclass the former, see ``examples/``.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import tvm
from tvm import relax
from tvm.relax.dpl import DFPattern

from collage.backends.contract.options import NoOptions, parse_options

if TYPE_CHECKING:
    from collage.backends.toolchain.native import Compilation

NUM_THREADS_ALL = 0
"""Value of ``num_threads`` that stands for every core the process may use."""


class Granularity(enum.Enum):
    """How far a backend may join its composites (DESIGN: operator or graph)."""

    OPERATOR = "operator"
    """Every composite is a partition of its own."""
    GRAPH = "graph"
    """Adjacent composites may be joined into one region."""


@dataclass(frozen=True)
class Verdict:
    """A predicate's answer: yes, or no with a reason a user can read."""

    accepted: bool
    reason: str = ""

    @classmethod
    def yes(cls) -> Verdict:
        return cls(True)

    @classmethod
    def no(cls, reason: str) -> Verdict:
        return cls(False, reason)

    def __bool__(self) -> bool:
        return self.accepted


@dataclass(frozen=True)
class Match:
    """What a pattern matched, as a predicate sees it.

    Attributes
    ----------
    root : relax.Expr
        The expression the whole pattern matched.
    annotated : mapping of str to relax.Expr
        The expressions matched by the triple's named sub-patterns. A variable bound inside the
        dataflow block stands for itself; constants are ``tvm.ir.GenericConst``.
    """

    root: relax.Expr
    annotated: Mapping[str, relax.Expr]


Predicate = Callable[[Match], Verdict]


def always(_: Match) -> Verdict:
    """Predicate that accepts every match."""
    return Verdict.yes()


@dataclass(frozen=True)
class PatternTriple:
    """(name, Relax dataflow pattern, predicate), as in TVM's pattern tables.

    ``name`` is ``<backend>.<what>``; ``annotations`` names sub-patterns for the predicate. In a
    backend's list a later triple has a higher priority, as in ``relax.backend.register_patterns``.
    """

    name: str
    pattern: DFPattern
    predicate: Predicate = always
    annotations: Mapping[str, DFPattern] = field(default_factory=dict)


@dataclass(frozen=True)
class Availability:
    """Whether a backend can be used on this machine.

    ``versions`` maps each library to its version; they are part of every measurement's key.
    ``remedy`` is a command line that mends an absence, for example ``pip install ...``.
    """

    usable: bool
    versions: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class BuildContext:
    """Where and how native code is built.

    Attributes
    ----------
    cache_dir : Path
        Objects compiled once per content; survives the process.
    work_dir : Path
        Scratch folder of one compilation; must exist until the final link.
    num_threads : int
        Threads every backend's kernels use; ``NUM_THREADS_ALL`` for all cores.
    cxx : str
        The C++ compiler driver, also used to link.
    tuning_log : Path or None
        The user's log, which takes and gives what backends find by timing kernels, see
        :mod:`collage.backends.storage.tuning_store`; the cache folder has it in any case.
    replay : bool
        Time nothing while compiling: a choice that was not made before is an error.
    """

    cache_dir: Path
    work_dir: Path
    num_threads: int = NUM_THREADS_ALL
    cxx: str = "g++"
    tuning_log: Path | None = None
    replay: bool = False


@dataclass(frozen=True)
class LibraryNeed:
    """A shared library that a compiled model needs and does not bring along.

    Attributes
    ----------
    soname : str
        The name it is loaded by, for example ``libcublasLt.so.13``.
    version : str
        What was linked against.
    package : str
        The Python package that brings it.
    path : Path
        Where it lies on this machine.
    """

    soname: str
    version: str
    package: str
    path: Path


@dataclass(frozen=True)
class BackendTarget:
    """A backend, its validated options, and the TVM target of the device it refines.

    Attributes
    ----------
    backend : str
        Name of a registered backend.
    device : tvm.target.Target
        The TVM target compiled for, for example ``llvm -mcpu=...``.
    options : object
        An instance of the backend's ``options_type`` (a frozen dataclass).
    """

    backend: str
    device: tvm.target.Target
    options: Any = field(default_factory=NoOptions)

    @cached_property
    def implementation(self) -> Backend:
        """The registered backend of that name.

        Raises
        ------
        TargetError
            When there is none.
        """
        # The registry makes targets itself: it cannot be imported before them.
        from collage.backends.contract.registry import get_backend

        return get_backend(self.backend)

    def option_dict(self) -> dict[str, Any]:
        """The options as plain values, for logs and for ``RunCodegen``'s target options."""
        return dataclasses.asdict(self.options)

    def key(self) -> str:
        """Canonical one-line JSON of everything in this target; equal targets give equal text."""
        return self._key

    @cached_property
    def _key(self) -> str:
        device = {str(k): str(v) for k, v in self.device.export().items()}
        value = {"backend": self.backend, "options": self.option_dict(), "device": device}
        return json.dumps(value, sort_keys=True, default=str)

    def __hash__(self) -> int:
        return hash(self.key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BackendTarget) and self.key() == other.key()


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

    def required_libraries(self, target: BackendTarget) -> Sequence[LibraryNeed]:
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
