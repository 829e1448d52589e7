"""One stage's loops as its memory wants them, and what it accesses as places of one long row.

Axes that a reshape divided are cut where it cut them, and neighbours that are one run of memory in
all accesses are joined: heads that are merged behind attention, read at ``(j // 64, j % 64)``, are
runs of 64 elements then.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range, Var
from tvm.ir.expr import TensorLoad
from tvm.script.ir_builder import tirx as T

from collage.backends.tvm.common.blocks import Axis


@dataclass(frozen=True)
class Access:
    """Where one access is.

    Attributes
    ----------
    load : TensorLoad or BufferStore
        As the stage has it.
    buffer : tirx.Buffer
        What it accesses.
    place : expression
        In elements from the tensor's begin, of the nest's axes.
    strides : sequence of int or None
        How far it moves with each of the nest's axes; None where that is not fixed.
    """

    load: Any
    buffer: Any
    place: Any
    strides: Sequence[int | None]

    def step(self, axis: int) -> int:
        """The stride along an axis that is known to be fixed."""
        stride = self.strides[axis]
        assert stride is not None
        return stride


@dataclass(frozen=True)
class Nest:
    """A stage without reductions.

    Attributes
    ----------
    axes : sequence of Axis
        None of extent 1; the last one is the result's innermost.
    values : mapping
        The stage's own variables in terms of those of the axes.
    loads : sequence of Access
        Each once.
    store : Access
        Of the result, whose elements are visited in the order of memory.
    cut : bool
        Whether any axis was divided.
    """

    axes: Sequence[Axis]
    values: Mapping[Any, Any]
    loads: Sequence[Access]
    store: Access
    cut: bool


def nest_of(stmt: Any, axes: Sequence[Axis]) -> Nest | None:
    """The loops of an elementwise stage.

    Parameters
    ----------
    stmt : SBlock
        Stores one element, at its own place.
    axes : sequence of Axis
        Of the stage, none of which is reduced over.

    Returns
    -------
    Nest or None
        None where a place depends on what is loaded.
    """
    found = _distinct(loads_of(stmt.body.value))
    if any(loads_of(index) for load in found for index in load.indices):
        return None
    accesses = [*((load, load.source) for load in found), (stmt.body, stmt.body.buffer)]
    analyzer = sym.Analyzer()
    _bind(analyzer, axes)
    places = [analyzer.simplify(_flat(load, buffer)) for load, buffer in accesses]
    pieces: list[Axis] = []
    values: dict[Any, Any] = {}
    for axis in axes:
        own = _cut(axis, places)
        values[axis.var] = _joined(own, str(axis.var.ty))
        pieces.extend(piece for piece in own if piece.extent > 1)
    _bind(analyzer, pieces)
    places = [analyzer.simplify(put(place, values)) for place in places]
    whole = _merge(pieces, places, analyzer)
    pieces = [axis for axis, _ in whole]
    _bind(analyzer, pieces)
    later = {var: value for _, parts in whole for var, value in parts.items()}
    places = [analyzer.simplify(put(place, later)) for place in places]
    values = {var: analyzer.simplify(put(value, later)) for var, value in values.items()}
    made = [
        Access(load, buffer, place, [stride_along(place, axis.var) for axis in pieces])
        for (load, buffer), place in zip(accesses, places, strict=True)
    ]
    cut = sum(axis.extent > 1 for axis in axes) < sum(len(parts) or 1 for _, parts in whole)
    return Nest(pieces, values, made[:-1], made[-1], cut)


def loads_of(node: Any) -> list[TensorLoad]:
    """All loads in an expression."""
    found = list[TensorLoad]()
    tvm_ffi.structural_walk(node, [(TensorLoad, found.append)])
    return found


def stride_along(place: Any, var: Any) -> int | None:
    """How far a place moves when a variable moves by one.

    Parameters
    ----------
    place : expression
        In elements.
    var : tirx.Var
        One of its variables.

    Returns
    -------
    int or None
        None where that is not fixed.
    """
    parts = sym.detect_linear_equation(place, [var])
    if len(parts) != 2 or not isinstance(parts[0], tirx.IntImm):
        return None
    return int(parts[0])


def flat_view(buffer: Any) -> Any:
    """A declaration of the same memory as one row, within the builder that is open."""
    size = math.prod(int(extent) for extent in buffer.shape)
    return T.decl_buffer((size,), buffer.dtype, data=buffer.data, layout=None)


def put(expr: Any, values: Mapping[Any, Any]) -> Any:
    """An expression with others in place of its variables.

    Parameters
    ----------
    expr : expression
        Any.
    values : mapping
        By variables; the others stay.

    Returns
    -------
    expression
        Not simplified.
    """
    return tvm_ffi.structural_map(expr, [(Var, lambda var: values.get(var, var))])


def _distinct(loads: Sequence[Any]) -> list[Any]:
    kept = list[Any]()
    for load in loads:
        if not any(tvm_ffi.structural_equal(load, other) for other in kept):
            kept.append(load)
    return kept


def _bind(analyzer: sym.Analyzer, axes: Sequence[Axis]) -> None:
    for axis in axes:
        kind = axis.var.ty
        analyzer.bind(
            axis.var, Range.from_min_extent(tirx.const(0, kind), tirx.const(axis.extent, kind))
        )


def _flat(access: Any, buffer: Any) -> Any:
    place: Any = tirx.const(0, access.indices[0].ty) if access.indices else tirx.const(0, "int64")
    for index, extent in zip(access.indices, buffer.shape, strict=True):
        place = place * int(extent) + index
    return place


def _cut(axis: Axis, places: Sequence[Any]) -> list[Axis]:
    """An axis in pieces between the numbers that places divide it by, if they allow it."""
    divisors = {1, axis.extent}
    for place in places:
        _divisors(place, axis.var, divisors)
    steps = sorted(divisors)
    pairs = list(itertools.pairwise(steps))
    if steps[-1] != axis.extent or any(high % low for low, high in pairs):
        return [axis]
    kind = str(axis.var.ty)
    name = str(axis.var.name)
    return [
        Axis(Var(f"{name}_{low}", kind), high // low, False) for low, high in reversed(pairs)
    ] or [axis]


def _divisors(place: Any, var: Any, found: set[int]) -> None:
    def scale(expr: Any) -> int | None:
        if isinstance(expr, tirx.Cast):
            return scale(expr.value)
        if isinstance(expr, tirx.Add) and isinstance(expr.b, tirx.IntImm):
            return scale(expr.a)
        if isinstance(expr, tirx.FloorDiv | tirx.FloorMod) and isinstance(expr.b, tirx.IntImm):
            below = scale(expr.a)
            if below is None:
                return None
            found.add(below * int(expr.b))
            return below * int(expr.b) if isinstance(expr, tirx.FloorDiv) else below
        return 1 if isinstance(expr, Var) and expr.same_as(var) else None

    kinds = (tirx.FloorDiv, tirx.FloorMod)
    tvm_ffi.structural_walk(place, [(kinds, lambda expr: (scale(expr), None)[1])])


def _joined(pieces: Sequence[Axis], kind: str) -> Any:
    """The variable that pieces were cut out of."""
    value: Any = tirx.const(0, kind)
    for piece in pieces:
        value = value * piece.extent + (piece.var if piece.extent > 1 else 0)
    return value


def _merge(
    axes: Sequence[Axis], places: Sequence[Any], analyzer: sym.Analyzer
) -> list[tuple[Axis, dict[Any, Any]]]:
    """Runs of axes that are one in all places, and what their variables are of it."""
    groups: list[list[Axis]] = []
    for axis in axes:
        if groups and all(_follows(place, groups[-1][-1], axis) for place in places):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    merged = []
    for group in groups:
        if len(group) == 1:
            merged.append((group[0], dict[Any, Any]()))
            continue
        one = Axis(
            Var(str(group[-1].var.name), group[-1].var.ty),
            math.prod(axis.extent for axis in group),
            False,
        )
        parts, left = dict[Any, Any](), one.var
        for axis in reversed(group):
            first = axis is group[0]
            parts[axis.var] = left if first else tirx.floormod(left, axis.extent)
            left = tirx.floordiv(left, axis.extent)
        merged.append((one, parts))
    return merged


def _follows(place: Any, outer: Axis, inner: Axis) -> bool:
    first, second = stride_along(place, outer.var), stride_along(place, inner.var)
    return first is not None and second is not None and first == second * inner.extent
