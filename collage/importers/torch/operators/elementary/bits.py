"""The bits of numbers: read as another type, the next number, fraction and exponent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from tvm import relax, te, tirx
from tvm.relax import op

from collage.importers.torch.operators.arguments import Importer, dtype_of, shape_of
from collage.importers.torch.operators.errors import RefusedError

aten = torch.ops.aten

_WHOLE = {
    torch.float16: (torch.int16, 10),
    torch.bfloat16: (torch.int16, 7),
    torch.float32: (torch.int32, 23),
    torch.float64: (torch.int64, 52),
}
"""Of each type of numbers, whole numbers as wide, and how many digits a number has."""


def _as_type(importer: Importer, node: fx.Node) -> relax.Expr:
    """``x.view(dtype)``: elements of the last axis cut, or put together, the lowest bits first."""
    x, wanted = importer.value(node.args[0]), node.meta["val"]
    source, target = dtype_of(x), str(wanted.dtype).removeprefix("torch.")
    if wanted.is_complex():
        raise RefusedError("complex numbers")
    if source == target:
        return x
    # A truth value is a byte, 0 or 1.
    if source == "bool":
        x, source = importer.emit(op.astype(x, "uint8")), "uint8"
    byte = target == "bool"
    target = "uint8" if byte else target
    if source != target:
        shape = [int(extent) for extent in wanted.shape]
        program = _reinterpreted(shape, shape_of(x), target, _bits(source), _bits(target))
        x = importer.block_builder.emit_te(program, x, primfunc_name_hint="bit_cast")
    return importer.emit(op.astype(x, "bool")) if byte else x


def _bits(dtype: str) -> int:
    return 8 * int(getattr(torch, dtype).itemsize)


def _reinterpreted(
    wanted: list[int], given: list[int], target: str, wide: int, new: int
) -> Callable[[te.Tensor], te.Tensor]:
    def program(x: te.Tensor) -> te.Tensor:
        def bits(*place: Any) -> Any:
            return tirx.reinterpret(f"uint{wide}", x(*place))

        def element(*place: Any) -> Any:
            if wide == new:
                return tirx.reinterpret(target, bits(*place))
            *lead, last = place
            if wide > new:
                times = wide // new
                shift = tirx.Cast(f"uint{wide}", (last % times) * new)
                found = tirx.Cast(f"uint{new}", bits(*lead, last // times) >> shift)
                return tirx.reinterpret(target, found)
            times = new // wide
            parts = [tirx.Cast(f"uint{new}", bits(*lead, last * times + i)) for i in range(times)]
            total = parts[0]
            for number, part in enumerate(parts[1:], 1):
                total = total | (part << tirx.const(number * wide, f"uint{new}"))
            return tirx.reinterpret(target, total)

        return te.compute(tuple(wanted), element, "bits")

    return program


def _next(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Whole numbers of the same bits, counted from zero, have the order of those they stand for."""
    x, y = torch.broadcast_tensors(x, y)
    kind, _ = _WHOLE[x.dtype]
    lowest = torch.iinfo(kind).min

    def counted(value: torch.Tensor) -> torch.Tensor:
        bits = aten.view.dtype(value, kind)
        return torch.where(bits < 0, lowest - bits, bits)

    here, there = counted(x), counted(y)
    step = (there > here).to(kind) - (there < here).to(kind)
    found = here + step
    bits = torch.where((found < 0) | ((found == 0) & (here < 0)), lowest - found, found)
    moved = torch.where(step == 0, y, aten.view.dtype(bits, x.dtype))
    return torch.where(torch.isnan(x) | torch.isnan(y), math.nan, moved).to(x.dtype)


def _fraction_and_exponent(x: torch.Tensor) -> Any:
    """A fraction between 1/2 and 1, and the power of two that it is taken times."""
    if x.dtype in (torch.float16, torch.bfloat16):
        fraction, exponent = _fraction_and_exponent(x.float())
        return fraction.to(x.dtype), exponent
    kind, digits = _WHOLE[x.dtype]
    bias = 1 - math.frexp(torch.finfo(x.dtype).tiny)[1]
    whole = torch.abs(x)
    # Numbers with fewer digits than others are made larger first.
    small = whole < torch.finfo(x.dtype).tiny
    value = torch.where(small, x * 2.0**digits, x)
    bits = aten.view.dtype(value, kind)
    field = torch.iinfo(kind).max - (2**digits - 1)
    power = torch.div(bits & field, 2**digits, rounding_mode="floor") - bias
    power = power - torch.where(small, digits, 0)
    half = aten.view.dtype((bits & ~field) | (bias * 2**digits), x.dtype)
    plain = (x == 0) | torch.isnan(x) | torch.isinf(x)
    return torch.where(plain, x, half), torch.where(plain, 0, power).to(torch.int32)


def of_bits() -> dict[Any, Callable[..., Any]]:
    """What takes operators on bits apart, by operator."""
    return {
        aten.nextafter.default: _next,
        aten.frexp.Tensor: _fraction_and_exponent,
    }


BITS: dict[str, Callable[[Importer, fx.Node], Any]] = {"view.dtype": _as_type}
"""By the name that the translator has for an operator."""
