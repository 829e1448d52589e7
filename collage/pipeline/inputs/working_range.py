"""Which inputs a network was made for, as far as its first batch norms tell.

A batch norm holds the mean and the variance of what it was trained on. Where nothing but linear
operators lie between an input and a batch norm, the input's own follow: those with which the batch
norm sees what it expects.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import ir, relax

from collage.backends.relax.constant_data import constant_data
from collage.backends.relax.static_shape import static_shape
from collage.cost.reference import evaluate

_LINEAR = frozenset(
    {
        *(f"relax.nn.conv{n}d{kind}" for n in (1, 2, 3) for kind in ("", "_transpose")),
        *(f"relax.{name}" for name in ("add", "subtract", "multiply", "divide", "matmul")),
        *(f"relax.{name}" for name in ("permute_dims", "reshape", "astype", "nn.pad")),
    }
)
"""What the scale and the shift of an input go through, unless it meets itself there."""

_PLAIN, _LIMIT = 1.5, 1024.0
"""Deviations this near to 1 stay 1; none is farther from it than the other."""


@dataclass(frozen=True)
class Range:
    """What an input is like.

    Attributes
    ----------
    mean, deviation : float
        Of its elements.
    initial : ndarray or None
        Of what the model keeps from call to call, what it holds before the first one.
    example : ndarray or None
        With what the model was traced: it works on that, which may be all zeros.

    Examples
    --------
    >>> Range() == Range(mean=0.0, deviation=1.0)
    True
    """

    mean: float = 0.0
    deviation: float = 1.0
    initial: NDArray[Any] | None = field(default=None, compare=False, repr=False)
    example: NDArray[Any] | None = field(default=None, compare=False, repr=False)


def working_ranges(mod: tvm.IRModule) -> tuple[Range, ...]:
    """What each input of a module should be like; 0 and 1 where nothing tells.

    Parameters
    ----------
    mod : tvm.IRModule
        As imported: its batch norms have not become anything else yet.

    Examples
    --------
    >>> from collage.testing import graph
    >>> working_ranges(graph([(8,)], lambda _, x: relax.op.exp(x)))
    (Range(mean=0.0, deviation=1.0),)
    """
    func = mod["main"]
    return tuple(_range(func, index) for index in range(len(func.params)))


def _range(func: relax.Function, index: int) -> Range:
    param = func.params[index]
    if "float" not in str(getattr(param.ty, "dtype", "")):
        return Range()
    bindings = [binding for block in func.body.blocks for binding in block.bindings]
    # By variable that is a linear function of the input, the bindings that make it.
    made: dict[relax.Var, list[relax.VarBinding]] = {param: []}
    for binding in bindings:
        call = binding.value
        if not isinstance(call, ir.Call) or not isinstance(call.op, ir.Op):
            continue
        linear = [arg for arg in call.args if isinstance(arg, ir.Var) and arg in made]
        if str(call.op.name) == "relax.nn.batch_norm" and linear:
            return _range_before(func, index, made[linear[0]], linear[0], call)
        others = [arg for arg in call.args if isinstance(arg, ir.Var) and arg not in made]
        if len(linear) == 1 and not others and str(call.op.name) in _LINEAR:
            made[binding.var] = [*made[linear[0]], binding]
    return Range()


def _range_before(
    func: relax.Function,
    index: int,
    bindings: list[relax.VarBinding],
    var: relax.Var,
    norm: ir.Call,
) -> Range:
    """The range with which a batch norm sees its own mean and variance."""
    statistics = [arg for arg in norm.args[3:5] if isinstance(arg, ir.GenericConst)]
    shape = static_shape(func.params[index])
    if len(statistics) < 2 or math.prod(shape) == 0:
        return Range()
    mean, variance = (constant_data(arg).astype(np.float64).reshape(-1) for arg in statistics)
    axis = int(norm.attrs.axis) % len(static_shape(var))

    param = func.params[index]
    prefix = relax.Function(
        [param],
        relax.SeqExpr([relax.BindingBlock(bindings)] if bindings else [], var),
        var.ty,
    )

    def channels(values: np.ndarray) -> np.ndarray:
        (result,) = evaluate(prefix, [values.astype(str(param.ty.dtype))])
        moved: np.ndarray = np.moveaxis(result.astype(np.float64), axis, 0)
        return moved.reshape(moved.shape[0], -1)

    shift = channels(np.zeros(shape))
    noise = channels(np.random.default_rng(0).standard_normal(shape)) - shift
    ones = (channels(np.ones(shape)) - shift).mean(axis=1)
    shift = shift.mean(axis=1)
    spread = noise.var(axis=1)
    if not np.all(np.isfinite(spread)) or not np.any(spread > 0):
        return Range()
    usable = spread > 1e-6 * spread.max()
    deviation = float(np.sqrt(np.median(variance[usable] / spread[usable])))
    weight = 1.0 / np.maximum(variance, 1e-12)
    response = float(np.sum(weight * ones * ones))
    centre = float(np.sum(weight * ones * (mean - shift))) / response if response > 0 else 0.0
    if not (math.isfinite(deviation) and deviation > 0 and math.isfinite(centre)):
        return Range()
    deviation = min(max(deviation, 1 / _LIMIT), _LIMIT)
    if 1 / _PLAIN < deviation < _PLAIN:
        deviation = 1.0
    # A shift that is small beside the noise is that of few channels, not of the input.
    return Range(centre if 0.5 * deviation < abs(centre) < _LIMIT else 0.0, deviation)
