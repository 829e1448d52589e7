"""What every family of CUTLASS operators gives the frame (``codegen.py``, ``tuning.py``).

A family reads a composite function into a :class:`KernelSpec`, the key by which partitions share
kernels and tuning results; lists the configurations that could run it, best guess first; and
renders one *kernel unit*: CUDA source text that holds one kernel and defines two C functions,

    extern "C" int COLLAGE_KERNEL(const collage_cutlass_call* call);
    extern "C" size_t COLLAGE_KERNEL_WORKSPACE(const int64_t* sizes);

(see ``templates/collage_cutlass.h``; the frame defines both names as macros, by the text's digest).
Units take extents at run time, so that problems of other sizes share a compiled unit: equal text is
compiled once. The frame makes the entry points, so a family writes no stub.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import relax

from collage.backends.contract import PatternTriple
from collage.backends.contract.errors import CodegenError
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.relax.partitions.composites import Composite
from collage.backends.relax.tensor_spec import TensorSpec

MULTIPROCESSORS = 132
"""Of an H100 or H200, for estimates; an A100's 108 would order kernels alike."""
DTYPE_BITS = {"float16": 16, "bfloat16": 16, "float32": 32}
"""Element types of operands, by their width."""


def alignment(extent: int, bits: int) -> int:
    """The widest access, in elements of ``bits`` each, by which a run of ``extent`` divides.

    Parameters
    ----------
    extent : int
        Elements of the run.
    bits : int
        Of one element.

    Returns
    -------
    int
        A power of two; at most as many elements as have 128 bits, CUTLASS's widest access.
    """
    width = 128 // bits
    while extent % width:
        width //= 2
    return width


@dataclass(frozen=True)
class KernelSpec:
    """One problem for one kernel; equal specs share kernel, configuration and tuning record.

    Attributes
    ----------
    operator : str
        For example ``matmul`` or ``conv2d``.
    sizes : tuple of int
        The integers that the kernel unit takes at run time, in the family's order.
    dtype : str
        Element type of the operands.
    math : str
        How products are computed where the element type leaves a choice: ``tensor`` (half types),
        ``tf32``, ``3xtf32`` or ``simt``.
    layout : str
        Layouts of the operands, for example ``rrr`` or ``nhwc``.
    epilogue : str
        What follows the product, for example ``bias_gelu``; ``none`` for nothing.
    inputs : tuple of TensorSpec
        The tensors the kernel reads, in its order.
    output : TensorSpec
        The tensor it writes.
    scalars : tuple of float
        Numbers the kernel takes at run time, for example attention's scale.

    Examples
    --------
    >>> a = TensorSpec((64, 64), "float16")
    >>> spec = KernelSpec("mine", (64, 64), "float16", "tensor", "rr", "none", (a,), a)
    >>> spec.key()["output"]
    {'shape': (64, 64), 'dtype': 'float16'}
    """

    operator: str
    sizes: tuple[int, ...]
    dtype: str
    math: str
    layout: str
    epilogue: str
    inputs: tuple[TensorSpec, ...]
    output: TensorSpec
    scalars: tuple[float, ...] = ()

    def key(self) -> dict[str, Any]:
        """The spec as plain JSON values, as tuning records hold it."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Configuration:
    """One way to run a spec; a family subclasses it with more fields of plain JSON values.

    Attributes
    ----------
    kind : str
        ``sm90``, ``sm80``, ``simt`` or the family's own.

    Examples
    --------
    >>> Configuration("sm90").as_dict()
    {'kind': 'sm90'}
    """

    kind: str

    @property
    def is_quick(self) -> bool:
        """Whether its kernel is compiled in seconds, which CUTLASS's own are not."""
        return False

    def as_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values, as tuning records hold them."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Reading:
    """A composite function read.

    Attributes
    ----------
    spec : KernelSpec
        What is to be computed.
    arguments : tuple of relax.Var
        The composite's parameter behind each of ``spec.inputs``.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((64, 64), "float16"))
    >>> a = TensorSpec.of(x)
    >>> spec = KernelSpec("mine", (64, 64), "float16", "tensor", "rr", "none", (a,), a)
    >>> Reading(spec, (x,)).arguments[0].name
    'x'
    """

    spec: KernelSpec
    arguments: tuple[relax.Var, ...]

    @classmethod
    def of(cls, composite: Composite, spec: KernelSpec, arguments: Sequence[relax.Expr]) -> Reading:
        """The reading of a composite.

        Parameters
        ----------
        composite : Composite
            Its parameters are the inputs.
        spec : KernelSpec
            What it computes.
        arguments : sequence of relax.Expr
            In the order in which the kernel takes them.

        Returns
        -------
        Reading
            Its arguments are the composite's parameters.

        Raises
        ------
        CodegenError
            When an argument is no parameter of it.
        """
        parameters = composite.function.params
        for argument in arguments:
            if not any(argument.same_as(parameter) for parameter in parameters):
                raise CodegenError(
                    f"'{composite.name}': an operand is no parameter of it", value=composite.name
                )
        return cls(spec, tuple(arguments))


@dataclass(frozen=True)
class KernelSource:
    """One kernel unit: a short name for its file (no suffix) and its text.

    Examples
    --------
    >>> KernelSource("relu_float16", "// CUDA source text").stem
    'relu_float16'
    """

    stem: str
    text: str


class OperatorFamily(ABC):
    """A family of operators of the ``cutlass`` backend.

    Examples
    --------
    >>> from collage.backends.cutlass.families import families
    >>> [family.name for family in families() if family.owns("cutlass.layer_norm")]
    ['norm']
    """

    name: ClassVar[str]
    """Of the family; its composites are called ``cutlass.<prefix>…`` with one of ``prefixes``."""
    prefixes: ClassVar[tuple[str, ...]]

    def owns(self, composite: str) -> bool:
        """Whether a composite of that name is this family's."""
        return composite.startswith(tuple(f"cutlass.{prefix}" for prefix in self.prefixes))

    @abstractmethod
    def patterns(self, options: CutlassOptions, arch: str) -> Sequence[PatternTriple]:
        """The pattern table for an architecture such as ``sm_90a``; later ones go first.

        Parameters
        ----------
        options : CutlassOptions
            Of the target.
        arch : str
            What to compile for.

        Returns
        -------
        Sequence[PatternTriple]
            Named ``cutlass.`` and one of the family's prefixes.
        """

    @abstractmethod
    def read(self, composite: Composite, options: CutlassOptions, arch: str) -> Reading:
        """Read a composite function.

        Weights and biases are parameters of it; only tensors of one element stay constants.

        Parameters
        ----------
        composite : Composite
            One of this family's patterns matched it.
        options, arch
            As :meth:`patterns` takes them.

        Returns
        -------
        Reading
            Its spec, and the composite's parameter behind each of the spec's inputs.

        Raises
        ------
        CodegenError
            When the function is not what the family's patterns match.
        """

    @abstractmethod
    def configurations(
        self, spec: KernelSpec, options: CutlassOptions, arch: str
    ) -> Sequence[Configuration]:
        """Configurations worth measuring, at most about six, the best guess first; never empty.

        Parameters
        ----------
        spec : KernelSpec
            What is to be run.
        options : CutlassOptions
            They may ask for more, or for other kernels.
        arch : str
            What to compile for.

        Returns
        -------
        Sequence[Configuration]
            Each is one that :meth:`render` takes.
        """

    @abstractmethod
    def render(self, spec: KernelSpec, configuration: Configuration) -> KernelSource:
        """The kernel unit; its text depends on ``spec.sizes`` only where it must.

        Parameters
        ----------
        spec : KernelSpec
            What is to be run.
        configuration : Configuration
            How, one of :meth:`configurations`.

        Returns
        -------
        KernelSource
            Text that defines the unit's two functions; equal text is compiled once.
        """

    def launch_sizes(self, spec: KernelSpec, configuration: Configuration) -> tuple[int, ...]:
        """What the unit is handed as ``sizes``: the spec's, or more than those.

        Numbers that a configuration adds here, such as slices of a reduced axis, need no unit of
        their own.

        Parameters
        ----------
        spec : KernelSpec
            Its sizes are known.
        configuration : Configuration
            How it is run.

        Returns
        -------
        tuple[int, ...]
            In the order in which the unit's text reads them.
        """
        return spec.sizes
