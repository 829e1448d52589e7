"""Reading a partition function: which family's kernel, on which of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax

from collage.backends.contract.errors import CodegenError
from collage.backends.cutlass.families import KernelSpec, OperatorFamily
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.relax.partitions.composites import CompositeCall


@dataclass(frozen=True)
class Partition:
    """One partition function.

    Attributes
    ----------
    symbol : str
        The function's global symbol.
    family : OperatorFamily
        Whose composite it holds.
    spec : KernelSpec
        What is to be computed.
    arguments : tuple of int
        Position of each of ``spec.inputs`` among the function's parameters.
    num_parameters : int
        Of the function; the result comes after them.
    """

    symbol: str
    family: OperatorFamily
    spec: KernelSpec
    arguments: tuple[int, ...]
    num_parameters: int


def read_partition(
    function: relax.Function, known: Sequence[OperatorFamily], options: CutlassOptions, arch: str
) -> Partition:
    """Read a ``Codegen`` function that holds one composite.

    Parameters
    ----------
    function : relax.Function
        Holds one composite, its constants lifted.
    known, options, arch
        The families; the first that knows the composite's name reads it by the others.

    Returns
    -------
    Partition
        Its family, its spec, and for each input the position of the entry's argument.

    Raises
    ------
    CodegenError
        When it is not what the backend's patterns match.
    """
    call = CompositeCall.of(function, "cutlass")
    symbol, name = call.symbol, call.composite.name
    family = next((family for family in known if family.owns(name)), None)
    if family is None:
        raise CodegenError(f"'{symbol}' holds '{name}', which cutlass does not know", value=name)
    reading = family.read(call.composite, options, arch)
    positions = tuple(call.position(argument) for argument in reading.arguments)
    return Partition(symbol, family, reading.spec, positions, len(function.params))
