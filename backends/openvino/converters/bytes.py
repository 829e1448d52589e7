"""Converters of what is rounded to steps: OpenVINO's plugin computes in bytes between such.

A tensor rounded to 256 steps is one ``FakeQuantize``, whose result are the numbers that bytes stand
for; weights are bytes, converted and scaled. Where products read both, the plugin multiplies bytes.
"""

from __future__ import annotations

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from collage.backends.openvino.model import OvTensor
from collage.backends.openvino.problem import CONVERTERS, RegionWriter, converts
from collage.backends.relax.static_shape import static_shape
from collage.backends.relax.stepped import NAME as STEPPED
from collage.backends.relax.stepped import Steps

_LEVELS = 256


def in_steps(w: RegionWriter, x: OvTensor, steps: Steps) -> OvTensor:
    """A tensor rounded to steps, once for all that read it.

    Parameters
    ----------
    w : RegionWriter
        Gets the operator.
    x : OvTensor
        What is rounded.
    steps : Steps
        From 0 to 255.

    Returns
    -------
    OvTensor
        The numbers that bytes stand for.
    """
    # A tensor is the result of one node; nodes compare by what they are.
    key = (x.get_node().get_friendly_name(), x.get_index(), steps)
    if key not in w.stepped:
        low, high = (np.float32((end - steps.point) * steps.step) for end in (0, _LEVELS - 1))
        bounds = [w.number(float(end), x) for end in (low, high)]
        w.stepped[key] = w.op.fake_quantize(x, *bounds, *bounds, _LEVELS).output(0)
    return w.stepped[key]


@converts("quantize")
def _quantize(w: RegionWriter, call: relax.Call) -> OvTensor:
    """The numbers that the bytes stand for already: ``dequantize`` leaves them."""
    limits = np.iinfo(str(call.attrs.out_dtype))
    step, zero = (_number(w, arg) for arg in call.args[1:3])
    return in_steps(w, w.tensor(call.args[0]), Steps(step, int(zero) - int(limits.min)))


@converts("dequantize")
def _dequantize(w: RegionWriter, call: relax.Call) -> OvTensor:
    whole = w.array(w.resolved(call.args[0]))
    if whole is None:
        return w.tensor(call.args[0])
    return scaled(w, *bytes_of(w, call, whole))


def weights_in_bytes(
    w: RegionWriter, expr: relax.Expr
) -> tuple[NDArray[np.int8], NDArray[np.float32]] | None:
    """Weights as signed bytes and scales of as many axes; None of those that are numbers.

    Parameters
    ----------
    w : RegionWriter
        Knows what variables stand for.
    expr : relax.Expr
        An operand.

    Returns
    -------
    tuple of ndarray or None
        Whole numbers, and what they are multiples of.
    """
    call = w.resolved(expr)
    if not isinstance(call, relax.Call) or str(call.op.name) != "relax.dequantize":
        return None
    whole = w.array(w.resolved(call.args[0]))
    return None if whole is None else bytes_of(w, call, whole)


def bytes_of(
    w: RegionWriter, call: relax.Call, whole: NDArray[np.int8]
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Constant bytes that stand for numbers, and their scales.

    Parameters
    ----------
    w : RegionWriter
        For the error.
    call : relax.Call
        Says what they stand for.
    whole : ndarray
        The bytes.

    Returns
    -------
    tuple of ndarray
        The bytes and their scales, which broadcast.

    Raises
    ------
    CodegenError
        When their scales are computed, or zero is not 0.
    """
    scales, zero = (w.array(w.resolved(arg)) for arg in call.args[1:3])
    if scales is None or zero is None or zero.any() or whole.dtype != np.int8:
        raise w.error("weights in bytes have computed scales, or a zero point")
    along = [1] * whole.ndim
    along[int(call.attrs.axis) % whole.ndim if whole.ndim else 0] = -1
    return whole, scales.reshape(along)


def scaled(w: RegionWriter, whole: NDArray[np.int8], scales: NDArray[np.float32]) -> OvTensor:
    """Bytes and what they are multiples of, as the plugin wants weights.

    Parameters
    ----------
    w : RegionWriter
        Gets the operators.
    whole, scales : ndarray
        That broadcast.

    Returns
    -------
    OvTensor
        Their product.
    """
    floats = w.op.convert(w.constant(whole), "f32").output(0)
    return w.op.multiply(floats, w.constant(scales)).output(0)


def _stepped_matmul(w: RegionWriter, call: relax.Call) -> OvTensor:
    steps = Steps.of(call)
    whole, scales = (w.array(w.resolved(arg)) for arg in call.args[1:3])
    if steps is None or whole is None or scales is None or len(call.args) > 3:
        raise w.error("only products of constant bytes in fixed steps are taken")
    x = in_steps(w, w.tensor(call.args[0]), steps)
    weights = scaled(w, whole, scales.reshape(1, -1))
    return w.reshape(w.op.matmul(x, weights, False, False).output(0), static_shape(call))


def _number(w: RegionWriter, expr: relax.Expr) -> float:
    constant = w.resolved(expr)
    if not isinstance(constant, tvm.ir.GenericConst):
        raise w.error("a scale or zero point is no constant")
    return float(constant.value.numpy().item())


CONVERTERS[STEPPED] = _stepped_matmul
