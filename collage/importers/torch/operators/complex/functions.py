"""Functions of complex numbers in terms of their parts.

Each is given to PyTorch as the operator's decomposition; of real numbers none is touched. Branch
cuts are PyTorch's: the argument of a number lies in (-pi, pi].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch

aten = torch.ops.aten

Function = Callable[..., Any]

_FLAT = 20.0
"""From where on the hyperbolic tangent is one in double precision."""
_POWERS = 16
"""The largest whole exponent that is computed by products."""


def parts(z: torch.Tensor, kind: torch.dtype | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Real and imaginary part of a tensor, which may be real.

    Parameters
    ----------
    z : torch.Tensor
        Complex or not.
    kind : torch.dtype, optional
        The real type that both are to have.

    Returns
    -------
    tuple of torch.Tensor
        Two real tensors.
    """
    re, im = (z.real, z.imag) if z.is_complex() else (z, torch.zeros_like(z))
    return (re, im) if kind is None else (re.to(kind), im.to(kind))


def of_complex(function: Function, other: Function | None) -> Function:
    """A decomposition of what has a complex operand.

    Parameters
    ----------
    function : callable
        Takes an operator on complex numbers apart.
    other : callable, optional
        Takes it apart where its operands are real; it is left alone without.

    Returns
    -------
    callable
        Either of them.
    """

    @wraps(function)
    def either(*args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        if any(isinstance(x, torch.Tensor) and x.is_complex() for x in given):
            return function(*args, **kwargs)
        return NotImplemented if other is None else other(*args, **kwargs)

    return either


def _reciprocal(z: torch.Tensor) -> torch.Tensor:
    """Divided by the larger part first, whose square may be infinite."""
    re, im = parts(z)
    large = torch.maximum(re.abs(), im.abs())
    re, im = re / large, im / large
    size = (re * re + im * im) * large
    return torch.complex(re / size, -im / size)


def _log(z: torch.Tensor, base: float = math.e) -> torch.Tensor:
    size, angle = z.abs().log(), z.angle()
    if base != math.e:
        size, angle = size / math.log(base), angle / math.log(base)
    return torch.complex(size, angle)


def _sqrt(z: torch.Tensor) -> torch.Tensor:
    re, im = parts(z)
    half = torch.sqrt((re.abs() + z.abs()) / 2)
    other = torch.where(half == 0, 0.0, im / (2 * torch.where(half == 0, 1.0, half)))
    down = torch.copysign(half, im)
    return torch.complex(torch.where(re >= 0, half, other.abs()), torch.where(re >= 0, other, down))


def _rsqrt(z: torch.Tensor) -> torch.Tensor:
    return _reciprocal(_sqrt(z))


def _whole_power(z: torch.Tensor, exponent: int) -> torch.Tensor:
    found, square, rest = None, z, abs(exponent)
    while rest:
        if rest % 2:
            found = square if found is None else found * square
        square, rest = square * square if rest > 1 else square, rest // 2
    if found is None:
        return torch.complex(torch.ones_like(z.real), torch.zeros_like(z.real))
    return _reciprocal(found) if exponent < 0 else found


def _power(z: Any, exponent: Any) -> torch.Tensor:
    by_products = isinstance(exponent, int | float) and exponent in range(-_POWERS, _POWERS + 1)
    if by_products:
        return _whole_power(z, int(exponent))
    if isinstance(exponent, float) and exponent == 0.5:
        return _sqrt(z)
    kind = torch.result_type(z, exponent)
    real = kind.to_real()
    base, by = (
        torch.complex(*parts(x, real))
        if isinstance(x, torch.Tensor)
        else torch.complex(*(torch.full((), v, dtype=real) for v in (x.real, x.imag)))
        for x in (z, exponent)
    )
    found = torch.exp(by * _log(base))
    re, im = parts(found)
    zero = base.abs() == 0
    return torch.complex(
        torch.where(zero, (by.abs() == 0).to(real), re), torch.where(zero, 0.0, im)
    )


def _sine(z: torch.Tensor) -> torch.Tensor:
    re, im = parts(z)
    return torch.complex(re.sin() * im.cosh(), re.cos() * im.sinh())


def _cosine(z: torch.Tensor) -> torch.Tensor:
    re, im = parts(z)
    return torch.complex(re.cos() * im.cosh(), -(re.sin() * im.sinh()))


def _hyperbolic_sine(z: torch.Tensor) -> torch.Tensor:
    re, im = parts(z)
    return torch.complex(re.sinh() * im.cos(), re.cosh() * im.sin())


def _hyperbolic_cosine(z: torch.Tensor) -> torch.Tensor:
    re, im = parts(z)
    return torch.complex(re.cosh() * im.cos(), re.sinh() * im.sin())


def _hyperbolic_tangent(z: torch.Tensor) -> torch.Tensor:
    re, im = parts(z)
    wide, angle = 2 * re.clamp(-_FLAT, _FLAT), 2 * im
    size = wide.cosh() + angle.cos()
    return torch.complex(wide.sinh() / size, angle.sin() / size)


def _tangent(z: torch.Tensor) -> torch.Tensor:
    re, im = parts(z)
    turned = _hyperbolic_tangent(torch.complex(-im, re))
    return torch.complex(turned.imag, -turned.real)


def _sigmoid(z: torch.Tensor) -> torch.Tensor:
    return _hyperbolic_tangent(z * 0.5) * 0.5 + 0.5


def _exponential_less_one(z: torch.Tensor) -> torch.Tensor:
    re, im = parts(z)
    half = (im / 2).sin()
    return torch.complex(re.expm1() * im.cos() - 2 * half * half, re.exp() * im.sin())


def _log_of_one_more(z: torch.Tensor) -> torch.Tensor:
    return _log(z + 1)


def _direction(z: torch.Tensor) -> torch.Tensor:
    size = z.abs()
    return z / torch.where(size == 0, 1.0, size)


def _mean(z: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    return z.sum(dtype=dtype) / z.numel()


def _product_along(
    z: torch.Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """In as many steps as the length has digits."""
    z = (z if dtype is None else z.to(dtype)).movedim(dim, -1)
    if not z.shape[-1]:
        return NotImplemented
    while z.shape[-1] > 1:
        even = z.shape[-1] // 2 * 2
        z = torch.cat([z[..., 0:even:2] * z[..., 1:even:2], z[..., even:]], -1)
    return z.movedim(-1, dim) if keepdim else z.squeeze(-1)


def _product(z: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    return _product_along(z.reshape(-1), 0, dtype=dtype)


def _chosen(condition: torch.Tensor, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    real = torch.result_type(one, two).to_real()
    (a, b), (c, d) = parts(one, real), parts(two, real)
    return torch.complex(torch.where(condition, a, c), torch.where(condition, b, d))


def _equal(one: torch.Tensor, two: Any) -> torch.Tensor:
    a, b = parts(one)
    if not isinstance(two, torch.Tensor):
        return (a == two.real) & (b == two.imag)
    c, d = parts(two)
    return (a == c) & (b == d)


def _unequal(one: torch.Tensor, two: Any) -> torch.Tensor:
    return ~_equal(one, two)


def _norm(
    z: torch.Tensor,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    real = None if dtype is None else dtype.to_real()
    return torch.linalg.vector_norm(z.abs(), ord, dim, keepdim, dtype=real)


def complex_functions() -> dict[Any, Function]:
    """What takes functions of complex numbers apart, by operator.

    Examples
    --------
    >>> taken_apart = complex_functions()
    >>> taken_apart[aten.reciprocal.default](torch.tensor(2j))
    tensor(0.-0.5000j)
    """
    return {
        aten.reciprocal.default: _reciprocal,
        aten.log.default: _log,
        aten.log2.default: partial(_log, base=2),
        aten.log10.default: partial(_log, base=10),
        aten.log1p.default: _log_of_one_more,
        aten.sqrt.default: _sqrt,
        aten.rsqrt.default: _rsqrt,
        aten.pow.Tensor_Scalar: _power,
        aten.pow.Tensor_Tensor: _power,
        aten.pow.Scalar: _power,
        aten.expm1.default: _exponential_less_one,
        aten.sin.default: _sine,
        aten.cos.default: _cosine,
        aten.tan.default: _tangent,
        aten.sinh.default: _hyperbolic_sine,
        aten.cosh.default: _hyperbolic_cosine,
        aten.tanh.default: _hyperbolic_tangent,
        aten.sigmoid.default: _sigmoid,
        aten.sgn.default: _direction,
        aten.mean.default: _mean,
        aten.prod.default: _product,
        aten.prod.dim_int: _product_along,
        aten.where.self: _chosen,
        aten.eq.Tensor: _equal,
        aten.eq.Scalar: _equal,
        aten.ne.Tensor: _unequal,
        aten.ne.Scalar: _unequal,
        aten.linalg_vector_norm.default: _norm,
    }
