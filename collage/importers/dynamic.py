"""Concrete shapes for Relax modules with symbolic dimensions."""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from collage.backends.contract.errors import ShapeError
from collage.importers._base import Shapes, show, unknown_input
from collage.importers.functions import public_functions


def bind_shapes(mod: tvm.IRModule, shapes: Shapes) -> tvm.IRModule:
    """The module with the symbolic dimensions of its public functions' inputs made numbers.

    Parameters
    ----------
    mod : tvm.IRModule
        As the user gave it.
    shapes : mapping of str to sequence of int
        By input name; a symbol that several inputs of a function share is given by any of them. A
        name holds for every function that has such an input; of one alone it is ``prefill.x``.

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
    for given in shapes:
        if given not in inputs:
            raise unknown_input(given, inputs)
    for name in functions:
        found: dict[tirx.Var, tuple[int, str]] = {}
        for param in mod[name].params:
            own = f"{name}.{param.name}"
            label = own if own in inputs and own in shapes else str(param.name)
            if label in shapes and isinstance(param.ty, relax.TensorType):
                _bind(label, param.ty, tuple(shapes[label]), found)
        if found:
            values = {symbol: size for symbol, (size, _) in found.items()}
            mod = relax.transform.BindSymbolicVars(values, name)(mod)
    return mod


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
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ShapeError(
                    f"input '{name}': '{show(shape)}' is no shape; give positive whole numbers",
                    value=shape,
                )
            known, owner = found.setdefault(dim, (size, name))
            if known != size:
                raise ShapeError(
                    f"inputs '{owner}' and '{name}' share the dimension '{dim}', but were given "
                    f"{known} and {size} for it",
                    value=shape,
                )
