"""Reading a partition function: which family's kernel, on which of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax

from collage.backends.cutlass.family import KernelSpec, OperatorFamily
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.errors import CodegenError


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
    function: relax.Function,
    known: Sequence[OperatorFamily],
    options: CutlassOptions,
    arch: str,
) -> Partition:
    """Read a ``Codegen`` function that holds one composite.

    Raises
    ------
    CodegenError
        When it is not what the backend's patterns match.
    """
    symbol = str(function.attrs["global_symbol"])
    bindings = {b.var: b.value for block in function.body.blocks for b in block.bindings}

    def resolve(expr: relax.Expr) -> relax.Expr:
        while isinstance(expr, relax.Var) and expr in bindings:
            expr = bindings[expr]
        return expr

    composites = [v for v in bindings.values() if isinstance(v, relax.Function)]
    call = resolve(function.body.body)
    if len(composites) != 1 or not isinstance(call, relax.Call):
        raise CodegenError(
            f"'{symbol}' holds {len(composites)} composites; cutlass takes one", value=symbol
        )
    composite = composites[0]
    name = str(composite.attrs["Composite"])
    family = next((family for family in known if family.owns(name)), None)
    if family is None:
        raise CodegenError(f"'{symbol}' holds '{name}', which cutlass does not know", value=name)
    reading = family.read(name, composite, options, arch)
    given = dict(zip(composite.params, call.args, strict=True))
    positions = []
    for var in reading.arguments:
        argument = resolve(given[var])
        found = [i for i, param in enumerate(function.params) if param.same_as(argument)]
        if not found:
            raise CodegenError(
                f"'{symbol}': an operand of '{name}' is not one of its parameters", value=symbol
            )
        positions.append(found[0])
    return Partition(symbol, family, reading.spec, tuple(positions), len(function.params))
