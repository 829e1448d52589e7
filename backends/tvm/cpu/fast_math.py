"""Vectorizable ``exp``, ``tanh`` and ``erf`` in scheduled kernels.

LLVM turns a vector of any of them into one library call per lane. The polynomials below (Cephes'
``expf``; the minimax ratios of Eigen's ``ptanh_float`` and ``erf``, both also used by TVM's own
``topi.fast_*``) stay within a few units in the last place of float32.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op

_FLOAT32 = "float32"
_LOG2_E = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
_EXP_RANGE = (-87.3365, 88.7228)
_TANH_RANGE = 7.90531110763549805
_TANH_P = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
_TANH_Q = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
_ERF_RANGE = 4.0
_ERF_P = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
    -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF_Q = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
    -1.42647390514189e-02,
)  # fmt: skip


def use_fast_math(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Replace float32 ``exp``, ``tanh``, ``sigmoid`` and ``erf`` by polynomials."""

    def replace(call: Call) -> Any:
        if not isinstance(call.op, Op) or len(call.args) != 1:
            return call
        approximate = _APPROXIMATIONS.get(str(call.op.name))
        if approximate is None or str(call.args[0].ty) != _FLOAT32:
            return call
        return let(call.args[0], approximate)

    return func.with_body(tvm_ffi.structural_map(func.body, [(Call, replace)]))


def let(value: Any, body: Any) -> Any:
    """``let x = value in body(x)``: the argument is computed once, however often it is used."""
    var = tirx.Var("x", str(value.ty))
    return tirx.Let(var, value, body(var))


def _constant(value: float) -> Any:
    return tirx.const(value, _FLOAT32)


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    result = _constant(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + _constant(coefficient)
    return result


def _clamp(x: Any, low: float, high: float) -> Any:
    return tirx.max(tirx.min(x, _constant(high)), _constant(low))


def _exp(x: Any) -> Any:
    def scaled(clamped: Any) -> Any:
        power = tirx.floor(clamped * _constant(_LOG2_E) + _constant(0.5))
        return let(power, lambda n: reduced(clamped, n))

    def reduced(clamped: Any, n: Any) -> Any:
        rest = clamped - n * _constant(_LN2_HIGH) - n * _constant(_LN2_LOW)
        return let(rest, lambda r: assemble(n, r))

    def assemble(n: Any, r: Any) -> Any:
        mantissa = _polynomial(r, _EXP) * (r * r) + r + _constant(1.0)
        bits = (n.astype("int32") + tirx.const(127, "int32")) << tirx.const(23, "int32")
        return mantissa * tirx.reinterpret(_FLOAT32, bits)

    low, high = _EXP_RANGE
    finite = let(_clamp(x, low, high), scaled)
    # Below the range the result is zero, so that a mask of minus infinity leaves nothing.
    return tirx.Select(x < _constant(low), _constant(0.0), finite)


def _sigmoid(x: Any) -> Any:
    return _constant(1.0) / (_constant(1.0) + let(_constant(0.0) - x, _exp))


def _tanh(x: Any) -> Any:
    def ratio(c: Any) -> Any:
        return let(c * c, lambda s: c * _polynomial(s, _TANH_P) / _polynomial(s, _TANH_Q))

    return let(_clamp(x, -_TANH_RANGE, _TANH_RANGE), ratio)


def _erf(x: Any) -> Any:
    def ratio(c: Any) -> Any:
        return let(c * c, lambda s: c * _polynomial(s, _ERF_P) / _polynomial(s, _ERF_Q))

    return let(_clamp(x, -_ERF_RANGE, _ERF_RANGE), ratio)


_APPROXIMATIONS = {
    "tirx.exp": _exp,
    "tirx.sigmoid": _sigmoid,
    "tirx.tanh": _tanh,
    "tirx.erf": _erf,
}
