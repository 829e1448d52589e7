"""Concrete shapes for Relax modules with symbolic dimensions."""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from collage.backends.contract.errors import ShapeError
from collage.importers._base import (
    ImportedModel,
    Shapes,
    extents_by_name,
    from_module,
    reject_shapes,
    show,
)
from collage.importers.functions import public_functions


def bind_shapes(mod: tvm.IRModule, shapes: Shapes) -> tvm.IRModule:
    """The module with the symbolic dimensions of its public functions' inputs made numbers.

    Parameters
    ----------
    mod : tvm.IRModule
        As the user gave it.
    shapes : mapping of str to sequence of int
        By input name; a symbol that several inputs of a function share is given by any of them, or
        by its own name. A name holds for every function that has such an input; of one alone it is
        ``prefill.x``.

    Returns
    -------
    tvm.IRModule
        The same where nothing is symbolic.

    Raises
    ------
    ShapeError
        When shapes are of unknown inputs, or contradict the ranks, or each other.

    Examples
    --------
    >>> n = tirx.Var("n", "int64")
    >>> x = relax.Var("x", relax.TensorType((n, 8), "float32"))
    >>> builder = relax.BlockBuilder()
    >>> with builder.function("main", [x]):
    ...     builder.emit_func_output(builder.emit(relax.op.exp(x)))
    >>> bind_shapes(builder.get(), {"x": (4, 8)})["main"].ret_ty.shape
    R.shape([4, 8])
    """
    functions = public_functions(mod)
    pairs = [(f, str(param.name)) for f in functions for param in mod[f].params]
    inputs = list(dict.fromkeys(name for _, name in pairs))
    inputs += [f"{f}.{name}" for f, name in pairs if len(functions) > 1]
    symbols = [symbol for name in functions for symbol in _symbols(mod[name])]
    extents = extents_by_name(shapes, inputs, [str(symbol.name) for symbol in symbols])
    for name in functions:
        found: dict[tirx.Var, tuple[int, str]] = {
            symbol: (extents[symbol.name], symbol.name)
            for symbol in _symbols(mod[name])
            if symbol.name in extents
        }
        for param in mod[name].params:
            own = f"{name}.{param.name}"
            label = own if own in inputs and own in shapes else str(param.name)
            if label in shapes and isinstance(param.ty, relax.TensorType):
                _bind(label, param.ty, tuple(shapes[label]), found)
        if found:
            values = {symbol: size for symbol, (size, _) in found.items()}
            mod = relax.transform.BindSymbolicVars(values, name)(mod)
    return mod


def import_bound(
    mod: tvm.IRModule, shapes: Shapes, *, name: str, source_format: str
) -> ImportedModel:
    """A module for one set of shapes, described.

    Parameters
    ----------
    mod : tvm.IRModule
        As the user gave it.
    shapes : mapping of str to sequence of int
        As :func:`bind_shapes` takes them; those of inputs that have a shape may only repeat it.
    name, source_format : str
        See :class:`collage.importers.ImportedModel`.

    Returns
    -------
    ImportedModel
        Not yet normalized.

    Raises
    ------
    ModelError, ShapeError
        As :func:`bind_shapes` and :func:`collage.importers._base.from_module` do.
    """
    model = from_module(bind_shapes(mod, shapes), name=name, source_format=source_format)
    functions = [mod[name] for name in public_functions(mod)]
    params = {str(param.name) for function in functions for param in function.params}
    symbols = {str(symbol.name) for function in functions for symbol in _symbols(function)}
    of_inputs = {name: shapes[name] for name in shapes if name not in symbols - params}
    return reject_shapes(of_inputs, model)


def _symbols(function: relax.Function) -> list[tirx.Var]:
    """The symbolic dimensions of a function's parameters."""
    shapes = [p.ty.shape for p in function.params if isinstance(p.ty, relax.TensorType)]
    dims = [dim for s in shapes if isinstance(s, relax.ShapeExpr) for dim in s.values]
    return list(dict.fromkeys(dim for dim in dims if isinstance(dim, tirx.Var)))


def _bind(
    name: str, ty: relax.TensorType, shape: tuple[int, ...], found: dict[tirx.Var, tuple[int, str]]
) -> None:
    if not isinstance(ty.shape, relax.ShapeExpr):
        return
    declared = list(ty.shape.values)
    if len(declared) != len(shape):
        raise ShapeError(
            f"input '{name}' has {len(declared)} dimensions ({show(declared)}), but the shape "
            f"{show(shape)} has {len(shape)}",
            value=shape,
        )
    for dim, size in zip(declared, shape, strict=True):
        if isinstance(dim, tirx.Var):
            if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                raise ShapeError(
                    f"input '{name}': '{show(shape)}' is no shape; give whole numbers",
                    value=shape,
                )
            known, owner = found.setdefault(dim, (size, name))
            if known != size:
                raise ShapeError(
                    f"'{owner}' and '{name}' share the dimension '{dim}', but were given "
                    f"{known} and {size} for it",
                    value=shape,
                )
