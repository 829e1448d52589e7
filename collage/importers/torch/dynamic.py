"""Exported programs with open dimensions, for one set of shapes."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument
from torch.utils import _pytree

from collage.backends.contract.errors import ShapeError, telling_line
from collage.importers._base import Shapes, extents_by_name, show
from collage.importers.torch.exporting.layer_shapes import shapes_of_layers


def with_shapes(
    program: torch.export.ExportedProgram, shapes: Shapes
) -> tuple[torch.export.ExportedProgram, Shapes]:
    """The program for inputs of the given shapes; itself, where no dimension is open.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Exported with ``dynamic_shapes``, or without.
    shapes : mapping of str to sequence of int
        By input name; a dimension that several inputs share is given by any of them. Or by the
        dimension's name: that of its ``Dim`` where the program was exported in this process, else
        its symbol's, as ``range_constraints`` has it.

    Returns
    -------
    torch.export.ExportedProgram
        All of its dimensions are numbers.
    mapping of str to sequence of int
        The shapes of inputs among those that were given.

    Raises
    ------
    ShapeError
        When shapes are missing, contradict the ranks, or are none that the program takes.
    """
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    specs = [s.arg for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    declared = {
        spec.name: tuple(values[spec.name].shape)
        for spec in specs
        if isinstance(spec, TensorArgument)
    }
    if not any(isinstance(dim, torch.SymInt) for shape in declared.values() for dim in shape):
        return program, shapes
    sizes, of_inputs = _sizes(declared, shapes)
    inputs: list[Any] = []
    for spec in specs:
        if isinstance(spec, TensorArgument):
            shape = [_size(dim, sizes, spec.name) for dim in declared[spec.name]]
            like = values[spec.name]
            inputs.append(torch.zeros(shape, dtype=like.dtype, device=like.device))
        else:
            inputs.append(spec.value if isinstance(spec, ConstantArgument) else None)
    args, kwargs = _pytree.tree_unflatten(inputs, program.call_spec.in_spec)
    try:
        with shapes_of_layers():
            return torch.export.export(program.module(), args, kwargs), of_inputs
    except Exception as err:  # guards fail as assertions, and torch raises errors of its own
        raise ShapeError(
            f"the program does not take these shapes: {telling_line(err)}", value=dict(sizes)
        ) from err


def _sizes(
    declared: dict[str, tuple[Any, ...]], shapes: Shapes
) -> tuple[dict[sympy.Symbol, int], Shapes]:
    """Every symbol's extent: given itself, or to be found from that of an expression of it; and the
    shapes of inputs among those that were given."""
    symbols = _symbols(declared)
    extents = extents_by_name(shapes, declared, symbols)
    sizes = {symbols[name]: extent for name, extent in extents.items()}
    expressions: list[tuple[sympy.Expr, int]] = []
    of_inputs = {name: shapes[name] for name in shapes if name in declared}
    for name, shape in of_inputs.items():
        if len(shape) != len(declared[name]):
            raise ShapeError(
                f"input '{name}' has {len(declared[name])} dimensions ({show(declared[name])}), "
                f"but the shape {show(shape)} has {len(shape)}",
                value=tuple(shape),
            )
        for dim, size in zip(declared[name], shape, strict=True):
            if not isinstance(dim, torch.SymInt):
                continue
            expression = dim.node.expr
            if not expression.is_Symbol:
                expressions.append((expression, size))
            elif sizes.setdefault(expression, size) != size:
                raise ShapeError(
                    f"input '{name}' shares the dimension '{dim}' with another one, which was "
                    f"given {sizes[expression]} for it, not {size}",
                    value=tuple(shape),
                )
    for expression, size in expressions:
        unknown = expression.free_symbols - set(sizes)
        if len(unknown) == 1:
            (symbol,) = unknown
            try:
                found = sympy.solve(expression.subs(sizes) - size, symbol)
            except NotImplementedError:
                continue  # Rounded quotients: it has to be given itself.
            whole = [int(one) for one in found if one.is_Integer and one > 0]
            if len(whole) == 1:
                sizes[symbol] = whole[0]
    return sizes, of_inputs


def _symbols(declared: dict[str, tuple[Any, ...]]) -> dict[str, sympy.Symbol]:
    """By what each open dimension is called: as its ``Dim``, if that is known, or its symbol."""
    found: dict[str, sympy.Symbol] = {}
    for dim in (dim for shape in declared.values() for dim in shape):
        if not isinstance(dim, torch.SymInt) or not dim.node.expr.is_Symbol:
            continue
        symbol, environment = dim.node.expr, dim.node.shape_env
        sources = environment.var_to_sources.get(symbol, [])
        names = (environment.source_name_to_debug_name.get(s.name) for s in sources)
        found[next(filter(None, names), str(symbol))] = symbol
        found.setdefault(str(symbol), symbol)
    return found


def _size(dim: Any, sizes: dict[sympy.Symbol, int], name: str) -> int:
    if not isinstance(dim, torch.SymInt):
        return int(dim)
    found = dim.node.expr.subs(sizes)
    if not found.is_Integer:
        raise ShapeError(
            f"input '{name}' has the open dimension '{dim}'; give its shape, for example "
            f"--shape {name}=1,3,224,224, or a range as 1:8, or the dimension alone, {dim}=8",
            value=str(dim),
        )
    return int(found)
