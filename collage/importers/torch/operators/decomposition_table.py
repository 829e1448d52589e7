"""Operators in terms of others, where PyTorch itself takes nothing apart, or not into what TVM has.

Each is given to PyTorch as the operator's decomposition, and traced with tensors of known shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from collage.importers.torch.operators.folds import col2im, windows_added

aten = torch.ops.aten


def _hypotenuse(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Scaled by the larger one, whose square may be infinite."""
    x, y = torch.broadcast_tensors(x.abs(), y.abs())
    large, small = torch.maximum(x, y), torch.minimum(x, y)
    ratio = small / torch.where((large == 0) | torch.isinf(large), 1.0, large)
    found = large * torch.sqrt(1 + ratio * ratio)
    return torch.where(torch.isinf(x) | torch.isinf(y), math.inf, found)


def _sign_bit(x: torch.Tensor) -> torch.Tensor:
    """Of zeros by their inverse; of what is no number it is taken to be none."""
    if x.dtype == torch.bool:
        return torch.zeros_like(x)
    if not x.is_floating_point():
        return x < 0
    return (x < 0) | ((x == 0) & (1 / x < 0))


def _with_sign(x: torch.Tensor, sign: Any) -> torch.Tensor:
    kind = torch.result_type(x, sign)
    x = x.to(kind if kind.is_floating_point else torch.get_default_dtype())
    if not isinstance(sign, torch.Tensor):
        return -x.abs() if math.copysign(1, sign) < 0 else x.abs()
    return torch.where(_sign_bit(sign), -x.abs(), x.abs())


def _angle(x: torch.Tensor) -> torch.Tensor:
    if x.is_complex():
        return NotImplemented
    kind = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    turned = torch.where(x < 0, math.pi, 0.0).to(kind)
    return torch.where(torch.isnan(x), math.nan, turned).to(kind)


def _shift(x: Any, y: Any, *, left: bool) -> torch.Tensor:
    """By fewer bits than there are; what is shifted by more has lost them all."""
    kind = torch.result_type(x, y)
    # Not a constant of its own: PyTorch 2.13 loses those that are made while it takes apart.
    x, y = (
        one.to(kind) if isinstance(one, torch.Tensor) else torch.full((), one, dtype=kind)
        for one in (x, y)
    )
    bits = torch.iinfo(kind).bits
    within = (y >= 0) & (y < bits)
    if left:
        factor = torch.pow(torch.full_like(y, 2), torch.where(within, y, 0))
        return torch.where(within, x * factor, 0)
    most = bits - 1 if kind.is_signed else bits
    # The largest power of two that there is has one bit less.
    steps = torch.where(within & (y < most), y, most).clamp(max=most)
    first = steps.clamp(max=bits - 2)
    found = torch.div(x, torch.pow(torch.full_like(y, 2), first), rounding_mode="floor")
    return torch.where(steps > first, torch.div(found, 2, rounding_mode="floor"), found)


def _sum_of_products(
    x: torch.Tensor, one: torch.Tensor, two: torch.Tensor, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    """All of a batch's products, as one of longer rows."""
    count, rows, inner = one.shape
    wide = one.permute(1, 0, 2).reshape(rows, count * inner)
    found = torch.mm(wide, two.reshape(count * inner, two.shape[2]))
    found = found if alpha == 1 else found * alpha
    if beta == 0:
        return found
    return found + (x if beta == 1 else x * beta)


def _index_reduce(
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> torch.Tensor:
    if not x.dim():
        x, source = x.reshape(1), source.reshape(1)
        found = _index_reduce(x, 0, index, source, reduce, include_self=include_self)
        return found.reshape([])
    shape = [1] * source.dim()
    shape[dim] = -1
    spread = index.reshape(shape).expand(source.shape)
    return x.scatter_reduce(dim, spread, source, reduce, include_self=include_self)


def _scatter_with(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: Any, *, reduce: str
) -> torch.Tensor:
    if not isinstance(source, torch.Tensor):
        source = torch.full(index.shape, source, dtype=x.dtype)
    how = {"add": "sum", "multiply": "prod"}[reduce]
    return x.scatter_reduce(dim, index, source, how)


def _put(
    x: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    flat = x.reshape(-1)
    return aten.index_put(flat, [index.reshape(-1)], source.reshape(-1), accumulate).reshape(
        x.shape
    )


def _strided_scatter(
    x: torch.Tensor, source: torch.Tensor, size: Any, stride: Any, offset: int | None = None
) -> torch.Tensor:
    places = torch.full([1] * len(size), offset or 0, dtype=torch.int64)
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        shape = [1] * len(size)
        shape[axis] = extent
        places = places + (torch.arange(extent) * step).reshape(shape)
    return _put(x, places.expand(list(size)), source)


def _diagonal(x: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> torch.Tensor:
    """Every so many-th element of matrices that lie in a row: where they are read, not copied."""
    moved = x.movedim((dim1, dim2), (-2, -1))
    *others, rows, columns = moved.shape
    if not isinstance(rows, int) or not isinstance(columns, int):
        return NotImplemented
    count = min(rows + min(offset, 0), columns - max(offset, 0))
    if count <= 0:
        return moved.new_empty([*others, 0])
    first = max(offset, -offset * columns)
    last = first + (count - 1) * (columns + 1)
    return moved.reshape([*others, rows * columns])[..., first : last + 1 : columns + 1]


def _diagonal_scatter(
    x: torch.Tensor, source: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    moved = x.movedim((dim1, dim2), (0, 1))
    places = torch.arange(source.shape[-1])
    rows, columns = places + max(-offset, 0), places + max(offset, 0)
    found = aten.index_put(moved, [rows, columns], source.movedim(-1, 0), False)
    return found.movedim((0, 1), (dim1, dim2))


def _histogram(x: torch.Tensor, bins: int = 100, low: Any = 0, high: Any = 0) -> torch.Tensor:
    flat = x.reshape(-1)
    if low == high == 0:
        if not flat.numel():
            return torch.zeros(bins, dtype=x.dtype)
        least, most = flat.amin(), flat.amax()
    else:
        least, most = (torch.full([], value, dtype=x.dtype) for value in (low, high))
    even = least == most
    least, most = torch.where(even, least - 1, least), torch.where(even, most + 1, most)
    place = torch.floor((flat - least) / (most - least) * bins).clamp(max=bins - 1)
    within = (flat >= least) & (flat <= most)
    # What is outside, or no number, is counted in a bin that nobody sees.
    place = torch.where(within, place, bins).to(torch.int64)
    none = torch.zeros(bins + 1, dtype=torch.int64)
    return none.scatter_add(0, place, torch.ones_like(place))[:bins].to(x.dtype)


def _pair_distances(x: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    pairs = torch.triu_indices(x.shape[0], x.shape[0], 1)
    gap = x.index_select(0, pairs[0]) - x.index_select(0, pairs[1])
    return torch.linalg.vector_norm(gap, p, -1)


def _log_determinant(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Sign and logarithm; the factors, which nobody is given, are none."""
    found = aten._linalg_det(x)[0]
    return torch.sign(found), torch.log(torch.abs(found)), x, found.to(torch.int32)


def _of_cholesky(right: torch.Tensor, factor: torch.Tensor, upper: bool = False) -> torch.Tensor:
    lower = factor.mT if upper else factor
    half = aten.linalg_solve_triangular(lower, right, upper=False)
    return aten.linalg_solve_triangular(lower.mT, half, upper=True)


def _cholesky_inverse(factor: torch.Tensor, upper: bool = False) -> torch.Tensor:
    ones = torch.eye(factor.shape[-1], dtype=factor.dtype).expand(factor.shape)
    return _of_cholesky(ones, factor, upper)


def _old_triangular(
    right: torch.Tensor,
    x: torch.Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    turned = x.mT if transpose else x
    found = aten.linalg_solve_triangular(
        turned, right, upper=upper != transpose, unitriangular=unitriangular
    )
    return found, x.expand(found.shape[:-2] + x.shape[-2:])


def _leaky(
    x: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    """Slopes are drawn in training only."""
    if training:
        return NotImplemented
    return torch.where(x >= 0, x, x * ((lower + upper) / 2)), noise


def _in_steps(x: torch.Tensor, scale: Any, zero: Any, low: int, high: int) -> Any:
    """As training for 8-bit integers rounds, and what was not cut off."""
    # A constant made by as_tensor would be lifted, and PyTorch 2.13 then misses it in the program.
    given = isinstance(scale, torch.Tensor)
    step = scale.float() if given else torch.full((), scale, dtype=torch.float32)
    # PyTorch multiplies by the inverse of the scale, in single precision.
    steps = torch.round(x.float() * (1 / step) + zero)
    found = (steps.clamp(low, high) - zero) * step
    return found.to(x.dtype), (steps >= low) & (steps <= high)


def _in_given_steps(
    x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, on: torch.Tensor, low: int, high: int
) -> Any:
    found, kept = _in_steps(x, scale, zero, low, high)
    return torch.where(on != 0, found, x), torch.where(on != 0, kept, torch.ones_like(kept))


def _channels_in_steps(
    x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, axis: int, low: int, high: int
) -> Any:
    shape = [1] * x.dim()
    shape[axis] = -1
    return _in_steps(x, scale.reshape(shape), zero.reshape(shape), low, high)


def _margins_of_labels(
    x: torch.Tensor, labels: torch.Tensor, reduction: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels end at the first -1; PyTorch's own takes those behind it for the first class."""
    rows, given = torch.atleast_2d(x), torch.atleast_2d(labels)
    named = torch.cumsum((given < 0).to(torch.int32), -1) == 0
    places = torch.where(named, given, 0)
    numbers = torch.arange(rows.shape[1])
    is_label = ((places.unsqueeze(-1) == numbers) & named.unsqueeze(-1)).any(1)
    gap = (1 - rows.gather(1, places).unsqueeze(-1) + rows.unsqueeze(1)).clamp(min=0)
    counts = named.unsqueeze(-1) & ~is_label.unsqueeze(1)
    each = torch.where(counts, gap, 0).sum((1, 2)) / rows.shape[1]
    found = {0: each.reshape(x.shape[:-1]), 1: each.mean(), 2: each.sum()}[reduction]
    return found, is_label.to(x.dtype).reshape(labels.shape)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """What takes operators apart, by operator.

    Examples
    --------
    >>> taken_apart = decompositions()
    >>> taken_apart[aten.hypot.default](torch.tensor(3.0), torch.tensor(4.0))
    tensor(5.)
    """
    return {
        aten.rrelu_with_noise_functional.default: _leaky,
        aten.fake_quantize_per_tensor_affine_cachemask.default: _in_steps,
        aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _in_given_steps,
        aten.fake_quantize_per_channel_affine_cachemask.default: _channels_in_steps,
        # Of what was conjugated: PyTorch turns its sign where it is read.
        aten._neg_view.default: torch.neg,
        aten.hypot.default: _hypotenuse,
        aten.signbit.default: _sign_bit,
        aten.copysign.Tensor: _with_sign,
        aten.copysign.Scalar: _with_sign,
        aten.angle.default: _angle,
        **{
            getattr(operator, form): lambda x, y, left=left: _shift(x, y, left=left)
            for operator, left in (
                (aten.bitwise_left_shift, True),
                (aten.__lshift__, True),
                (aten.bitwise_right_shift, False),
                (aten.__rshift__, False),
            )
            for form in operator.overloads()
            if form in ("Tensor", "Scalar", "Tensor_Scalar", "Scalar_Tensor")
        },
        aten.addbmm.default: _sum_of_products,
        aten.index_reduce.default: _index_reduce,
        aten.scatter.reduce: _scatter_with,
        aten.scatter.value_reduce: _scatter_with,
        aten.put.default: _put,
        aten.as_strided_scatter.default: _strided_scatter,
        aten.diagonal.default: _diagonal,
        aten.diagonal_scatter.default: _diagonal_scatter,
        aten.col2im.default: col2im,
        aten.unfold_backward.default: windows_added,
        aten.multilabel_margin_loss_forward.default: _margins_of_labels,
        aten.histc.default: _histogram,
        aten._pdist_forward.default: _pair_distances,
        aten._linalg_slogdet.default: _log_determinant,
        aten.cholesky_solve.default: _of_cholesky,
        aten.cholesky_inverse.default: _cholesky_inverse,
        aten.triangular_solve.default: _old_triangular,
    }
