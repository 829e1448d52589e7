"""Images and volumes looked up at places that data give: ``collage.grid_sample(x, grid)``.

Channels come first; of the grid's last axis the first element is along the image's last axis, from
-1 to 1, as PyTorch has it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol, Self

from tvm import ir, relax
from tvm.relax import op

from collage.backends.relax.own_operators import make_known
from collage.backends.relax.static_shape import static_shape

NAME = "collage.grid_sample"
METHODS, BEYOND = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
_CUBIC = -0.75


class _Arithmetic(Protocol):
    """What is done with numbers besides sums and products, which they know themselves."""

    def floor(self, x: Any) -> Any: ...

    def nearest(self, x: Any) -> Any:
        """The nearest whole number, of two the even one."""

    def size(self, x: Any) -> Any: ...

    def clip(self, x: Any, low: float, high: float) -> Any:
        """What is no number may become any."""

    def where_equal(self, x: Any, y: Any, value: Any) -> Any:
        """The value, or zero."""

    def named(self, x: Any) -> Any:
        """Computed once."""


@dataclass(frozen=True)
class Sampling:
    """How elements are looked up.

    Attributes
    ----------
    method : str
        One of ``METHODS``.
    beyond : str
        What is outside of the image, one of ``BEYOND``.
    corners : bool
        Whether -1 and 1 are the middles of the outer elements, rather than their outer borders.
    """

    method: str
    beyond: str
    corners: bool

    @classmethod
    def of(cls, call: relax.Call) -> Self:
        """That of a call of the operator."""
        attrs = call.attrs
        return cls(str(attrs["method"]), str(attrs["beyond"]), bool(attrs["corners"]))

    def taps(self, place: Any, extent: int, on: _Arithmetic) -> list[tuple[Any, Any]]:
        """Elements along an axis, and what each counts; none of them is outside.

        Parameters
        ----------
        place : number
            From -1 to 1.
        extent : int
            Of the axis.
        on : _Arithmetic
            With numbers of that kind.

        Returns
        -------
        list of (number, number or None)
            As many as the method takes; a nearest one counts whole.
        """
        half = (extent - 1) / 2
        middle = on.named(place * (half if self.corners else extent / 2) + half)
        if self.method == "bicubic":
            low = on.named(on.floor(middle))
            shares = _cubic(on.named(middle - low), on)
            steps = [on.named(self._inside(low + (i - 1.0), extent, on)) for i in range(4)]
        elif self.method == "nearest":
            steps, shares = [on.named(on.nearest(self._inside(middle, extent, on)))], [None]
        else:
            inside = on.named(self._inside(middle, extent, on))
            low = on.named(on.floor(inside))
            # Of what is no number there is none, either.
            rest = on.named((middle if self.beyond == "zeros" else inside) - low)
            steps, shares = [low, on.named(low + 1.0)], [on.named(1.0 - rest), rest]
        found = []
        for step, share in zip(steps, shares, strict=True):
            kept = on.named(on.clip(step, 0.0, extent - 1.0))
            if self.beyond == "zeros":
                whole = kept * 0.0 + 1.0 if share is None else share
                share = on.named(on.where_equal(step, kept, whole))
            found.append((kept, share))
        return found

    def _inside(self, place: Any, extent: int, on: _Arithmetic) -> Any:
        """Reflected at the border or cut off there, or what is far away brought near."""
        if self.beyond == "zeros":
            # Far outside it is nothing, however far.
            return on.clip(place, -4.0, extent + 3.0)
        if self.beyond == "reflection":
            low, length = (0.0, extent - 1.0) if self.corners else (-0.5, float(extent))
            if not length:
                return on.clip(place, 0.0, 0.0)
            away = on.named(on.size(place - low))
            turns = on.named(on.floor(away * (1.0 / length)))
            rest = on.named(away - turns * length)
            # Of an odd turn what is left to its end.
            odd = on.named(turns - on.floor(turns * 0.5) * 2.0)
            place = rest + odd * (length - rest * 2.0) + low
        return on.clip(place, 0.0, extent - 1.0)


def _cubic(t: Any, on: _Arithmetic) -> list[Any]:
    def near(x: Any) -> Any:
        return (x * (_CUBIC + 2.0) - (_CUBIC + 3.0)) * x * x + 1.0

    def far(x: Any) -> Any:
        return ((x * _CUBIC - 5 * _CUBIC) * x + 8 * _CUBIC) * x - 4 * _CUBIC

    back = on.named(1.0 - t)
    parts = [far(on.named(t + 1.0)), near(t), near(back), far(on.named(back + 1.0))]
    return [on.named(part) for part in parts]


def grid_sample(x: relax.Expr, grid: relax.Expr, how: Sampling) -> relax.Call:
    """A call of the operator.

    Parameters
    ----------
    x : relax.Expr
        (batch, channels, extents of an image or a volume).
    grid : relax.Expr
        (batch, extents of the result, places along the axes of the image, the last one first).
    how : Sampling
        How elements are looked up.

    Returns
    -------
    relax.Call
        Its type is not inferred yet.
    """
    return relax.Call(ir.Op.get(NAME), [x, grid], ir.make_node("ir.DictAttrs", **asdict(how)), [])


def _infer(call: relax.Call, _: relax.BlockBuilder) -> relax.Type:
    x, grid = (static_shape(arg) for arg in call.args)
    return relax.TensorType((*x[:2], *grid[1:-1]), str(call.args[0].ty.dtype))


@dataclass(frozen=True)
class _Number:
    """A tensor that knows sums and products."""

    expr: relax.Expr
    emit: Callable[[relax.Expr], relax.Expr]

    def _with(
        self, make: Callable[..., relax.Expr], other: Any, *, turned: bool = False
    ) -> _Number:
        kind = str(self.expr.ty.dtype)
        two = other.expr if isinstance(other, _Number) else relax.const(other, kind)
        one, two = (two, self.expr) if turned else (self.expr, two)
        return _Number(self.emit(make(one, two)), self.emit)

    def __add__(self, other: Any) -> _Number:
        return self._with(op.add, other)

    def __sub__(self, other: Any) -> _Number:
        return self._with(op.subtract, other)

    def __rsub__(self, other: Any) -> _Number:
        return self._with(op.subtract, other, turned=True)

    def __mul__(self, other: Any) -> _Number:
        return self._with(op.multiply, other)


class _Emitted:
    """Of tensors."""

    def floor(self, x: _Number) -> _Number:
        return _Number(x.emit(op.floor(x.expr)), x.emit)

    def nearest(self, x: _Number) -> _Number:
        return _Number(x.emit(op.round(x.expr)), x.emit)

    def size(self, x: _Number) -> _Number:
        return _Number(x.emit(op.abs(x.expr)), x.emit)

    def clip(self, x: _Number, low: float, high: float) -> _Number:
        return _Number(x.emit(op.clip(x.expr, low, high)), x.emit)

    def where_equal(self, x: _Number, y: _Number, value: _Number) -> _Number:
        same = x.emit(op.equal(x.expr, y.expr))
        zero = relax.const(0.0, str(value.expr.ty.dtype))
        return _Number(x.emit(op.where(same, value.expr, zero)), x.emit)

    def named(self, x: _Number) -> _Number:
        return x


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """By TVM's operator where it has the method; gathers and products otherwise."""
    (x, grid), one, emit = call.args, Sampling.of(call), builder.emit
    rank = len(static_shape(x)) - 2
    if rank == 2 and one.method != "bicubic" and one.beyond != "reflection":
        planes = emit(op.permute_dims(grid, [0, 3, 1, 2]))
        return op.image.grid_sample(
            x, planes, one.method, "NCHW", one.beyond, align_corners=one.corners
        )
    kind = str(x.ty.dtype)
    if kind not in ("float32", "float64"):
        x, grid = (emit(op.astype(each, "float32")) for each in (x, grid))
    found = _gathered(emit, x, grid, one)
    return op.astype(found, kind) if str(x.ty.dtype) != kind else found


def _gathered(
    emit: Callable[[relax.Expr], relax.Expr], x: relax.Expr, grid: relax.Expr, one: Sampling
) -> relax.Expr:
    batch, channels, *extents = static_shape(x)
    wanted = static_shape(grid)[1:-1]
    along = []
    for axis, extent in enumerate(extents):
        last = len(extents) - 1 - axis
        place = emit(op.strided_slice(grid, [-1], [last], [last + 1]))
        flat = emit(op.reshape(place, [batch, 1, math.prod(wanted)]))
        along.append(one.taps(_Number(flat, emit), extent, _Emitted()))
    rows = emit(op.reshape(x, [batch, channels, math.prod(extents)]))
    total: Any = None
    for taps in itertools.product(*along):
        number, weight = None, None
        for (step, share), extent in zip(taps, extents, strict=True):
            whole = emit(op.astype(step.expr, "int64"))
            if number is not None:
                scaled = emit(op.multiply(number, relax.const(extent, "int64")))
                whole = emit(op.add(scaled, whole))
            number = whole
            if share is not None:
                weight = share if weight is None else weight * share
        shape = [batch, channels, math.prod(wanted)]
        number = emit(op.broadcast_to(number, shape))
        part = _Number(emit(op.gather_elements(rows, number, 2)), emit)
        part = part if weight is None else part * weight
        total = part if total is None else total + part
    return op.reshape(total.expr, [batch, channels, *wanted])


make_known(NAME, "Elements of images and volumes at places that data give.", _infer, _legalize)
