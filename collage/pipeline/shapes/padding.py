"""Whether an axis may be padded: proven over two imports of a model, for two extents of it.

The two are walked side by side. They have to be the same program, but for the one extent, and every
operator has to be known to compute each slice of its result from the same slice of its operands
alone. Then a model for the larger extent, given the smaller one's slices and some more, computes
the smaller one's results and some more. Whatever is not known counts as no.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from collage.backends.contract.errors import ModelError
from collage.backends.relax.constant_data import constant_data
from collage.backends.relax.static_shape import tensor_shape
from collage.importers import ImportedModel
from collage.normalize import constants
from collage.pipeline.shapes import computing, moving
from collage.pipeline.shapes.operands import Axes, Operands, UnprovenError, has_extent
from collage.rewrite import apply_rules, flat_bindings, op_name

_RULES = {**computing.RULES, **moving.RULES}


@dataclass(frozen=True)
class PaddedAxes:
    """Where the extent is found.

    Attributes
    ----------
    inputs, outputs : tuple of (int, int)
        Which axis of which input, and of which output.
    """

    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]


def padded_axes(large: ImportedModel, small: ImportedModel, extents: tuple[int, int]) -> PaddedAxes:
    """The axes on which a model's inputs may be padded, and its outputs cut.

    Parameters
    ----------
    large, small : ImportedModel
        The same model with two extents of one dimension.
    extents : tuple of int
        The two.

    Returns
    -------
    PaddedAxes
        Pairs of an index and an axis, of inputs and of outputs.

    Raises
    ------
    UnprovenError
        When that is not known to change nothing; says why.

    Examples
    --------
    >>> from collage.importers import load_model
    >>> from collage.testing import graph
    >>> def net(rows):
    ...     return load_model(graph([(rows, 8)], lambda emit, x: relax.op.nn.softmax(x, axis=1)))
    >>> padded_axes(net(4), net(3), (4, 3))
    PaddedAxes(inputs=((0, 0),), outputs=((0, 0),))
    >>> def net(rows):
    ...     return load_model(graph([(rows, 8)], lambda emit, x: relax.op.nn.softmax(x, axis=0)))
    >>> padded_axes(net(4), net(3), (4, 3))
    Traceback (most recent call last):
        ...
    collage.pipeline.shapes.operands.UnprovenError: nn.softmax mixes ...
    """
    found = separate_axes(large, small, extents)
    if not found.inputs:
        raise UnprovenError("no input has it for an extent")
    return found


def separate_axes(
    large: ImportedModel, small: ImportedModel, extents: tuple[int, int]
) -> PaddedAxes:
    """As :func:`padded_axes`, where the extent may begin inside of the model, too.

    Parameters
    ----------
    large, small, extents
        As :func:`padded_axes` takes them.

    Returns
    -------
    PaddedAxes
        As :func:`padded_axes` has them.

    Raises
    ------
    UnprovenError
        As :func:`padded_axes` does.
    """
    walk = _Walk(extents)
    try:
        # Where something is looked up by numbers that are known, they tell the rows.
        main, other = (apply_rules(one.mod, constants.RULES)["main"] for one in (large, small))
    except ModelError as err:
        raise UnprovenError(str(err)) from err
    inputs = []
    for index, (one, two) in enumerate(zip(main.params, other.params, strict=True)):
        axis = walk.parameter(one, two)
        if axis is not None:
            inputs.append((index, axis))
    bindings, others = flat_bindings(main), flat_bindings(other)
    if len(bindings) != len(others):
        raise UnprovenError("the model is another one for another extent")
    for (var, value), (other_var, other_value) in zip(bindings, others, strict=True):
        walk.bind(var, other_var, value, other_value)
    found = walk.axes(main.body.body, other.body.body)
    results: tuple[Axes, ...] = found if isinstance(found, tuple) else (found,)
    outputs = []
    for index, place in enumerate(results):
        if isinstance(place, tuple):
            raise UnprovenError("an output is a tuple of tuples")
        if place is not None:
            shapes = (tensor_shape(_part(func.body.body.ty, index)) for func in (main, other))
            if tuple(shape[place] for shape in shapes if shape) != extents:
                raise UnprovenError("the rows of an output are several to a slice")
            outputs.append((index, place))
    return PaddedAxes(tuple(inputs), tuple(outputs))


class _Walk:
    """What is known of the variables so far."""

    def __init__(self, extents: tuple[int, int]) -> None:
        self._extents = extents
        self._known: dict[relax.Var, tuple[relax.Var, Axes]] = {}

    def parameter(self, one: relax.Var, two: relax.Var) -> int | None:
        """Which axis of an input has the extent."""
        shapes = tensor_shape(one), tensor_shape(two)
        axis = None if shapes[0] == shapes[1] else self._differing(*shapes, str(one.name))
        if axis is not None and tuple(shape[axis] for shape in shapes if shape) != self._extents:
            raise UnprovenError(f"the shape of {one.name} depends on the extent in another way")
        self._known[one] = (two, axis)
        return axis

    def bind(
        self, var: relax.Var, other: relax.Var, value: relax.Expr, other_value: relax.Expr
    ) -> None:
        """Find out about a variable from what it is bound to."""
        axes = self.axes(value, other_value)
        self._check(var.ty, other.ty, axes, op_name(value) or str(var.name))
        self._known[var] = (other, axes)

    def axes(self, one: relax.Expr, two: relax.Expr) -> Axes:
        """The axis of an expression that has the extent: of each part of a tuple."""
        if type(one) is not type(two):
            raise UnprovenError("the model is another one for another extent")
        match one:
            case relax.Var():
                if one not in self._known or not self._known[one][0].same_as(two):
                    raise UnprovenError("the model is another one for another extent")
                return self._known[one][1]
            case tvm.ir.GenericConst():
                return self._constant(constant_data(one), constant_data(two))
            case relax.Tuple():
                if len(one.fields) != len(two.fields):
                    raise UnprovenError("the model is another one for another extent")
                return tuple(map(self.axes, one.fields, two.fields))
            case relax.TupleGetItem():
                whole = self.axes(one.tuple_value, two.tuple_value)
                if one.index != two.index or not isinstance(whole, tuple):
                    raise UnprovenError("the model is another one for another extent")
                part: Axes = whole[int(one.index)]
                return part
            case tvm.ir.GlobalVar() if str(one.name_hint) == str(two.name_hint):
                return None
            case relax.ShapeExpr():
                # Whoever takes it is told by the shape of what comes out.
                return None
            case relax.Call():
                return self._call(one, two)
        if not tvm_ffi.structural_equal(one, two):
            raise UnprovenError("the model is another one for another extent")
        return None

    def _call(self, one: relax.Call, two: relax.Call) -> Axes:
        name = op_name(one)
        what = name or "a call of a function"
        if not name or name != op_name(two):
            raise UnprovenError(f"of {what} it is not known whether it mixes slices")
        if any(isinstance(arg, relax.Call) for arg in one.args):
            raise UnprovenError(f"an operand of {name} is no variable")
        if len(one.args) != len(two.args) or not tvm_ffi.structural_equal(one.attrs, two.attrs):
            raise UnprovenError(f"{name} is another one for another extent")
        if not _are_alike(one.ty, two.ty):
            raise UnprovenError(f"{name} gives {two.ty} for {one.ty} for another extent")
        axes = tuple(map(self.axes, one.args, two.args))
        if name in _RULES:
            return _RULES[name](Operands(name, one, two, axes, self._extents))
        if has_extent(axes) or not tvm_ffi.structural_equal(one.ty, two.ty):
            raise UnprovenError(f"of {what} it is not known whether it mixes slices")
        # Whatever it does, the extent has no part in it.
        return (None,) * len(one.ty.fields) if isinstance(one.ty, relax.TupleType) else None

    def _constant(self, one: np.ndarray, two: np.ndarray) -> int | None:
        if one.shape == two.shape:
            if one.tobytes() != two.tobytes() or one.dtype != two.dtype:
                raise UnprovenError("a constant depends on the extent")
            return None
        axis = self._differing(one.shape, two.shape, "a constant")
        cut = np.take(one, np.arange(two.shape[axis]), axis=axis)
        if cut.dtype != two.dtype or not np.array_equal(cut, two):
            raise UnprovenError("a constant depends on the extent")
        return axis

    def _differing(
        self, one: tuple[int, ...] | None, two: tuple[int, ...] | None, what: str
    ) -> int:
        """The one axis on which two shapes differ, in the ratio of the extents."""
        if one is None or two is None or len(one) != len(two):
            raise UnprovenError(f"the shape of {what} depends on the extent in another way")
        differing = [axis for axis in range(len(one)) if one[axis] != two[axis]]
        large, small = self._extents
        if len(differing) != 1 or one[differing[0]] * small != two[differing[0]] * large:
            raise UnprovenError(f"the shape of {what} depends on the extent in another way")
        return differing[0]

    def _check(self, one: tvm.ir.Type, two: tvm.ir.Type, axes: Axes, what: str) -> None:
        """See that types differ on the axis that a rule gave, and nowhere else."""
        if isinstance(axes, tuple):
            for field, other, axis in zip(one.fields, two.fields, axes, strict=True):
                self._check(field, other, axis, what)
            return
        if not isinstance(one, relax.TensorType):
            if axes is not None or not tvm_ffi.structural_equal(one, two):
                raise UnprovenError(f"{what} is no tensor and depends on the extent")
            return
        shapes = tensor_shape(one), tensor_shape(two)
        if str(one.dtype) != str(two.dtype):
            raise UnprovenError(f"the type of {what} depends on the extent")
        found = None if shapes[0] == shapes[1] else self._differing(*shapes, what)
        if found != axes or shapes[0] is None:
            raise UnprovenError(f"the shape of {what} depends on the extent in another way")


def _part(ty: tvm.ir.Type, index: int) -> tvm.ir.Type:
    return ty.fields[index] if isinstance(ty, relax.TupleType) else ty


def _are_alike(one: tvm.ir.Type, two: tvm.ir.Type) -> bool:
    """Whether types are of one kind and rank, whatever the extents."""
    if type(one) is not type(two):
        return False
    if isinstance(one, relax.TupleType):
        return len(one.fields) == len(two.fields) and all(map(_are_alike, one.fields, two.fields))
    return not isinstance(one, relax.TensorType) or one.ndim == two.ndim
