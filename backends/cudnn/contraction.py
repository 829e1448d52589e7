"""Convolutions and matrix products, with their epilogues, as cuDNN graphs."""

from __future__ import annotations

import math

from tvm import relax

from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.cudnn.epilogue import (
    Epilogue,
    add_epilogue,
    check_bias,
    same_dtype,
)
from collage.backends.cudnn.options import CudnnOptions
from collage.backends.cudnn.problem import (
    Graph,
    GraphBuilder,
    Kind,
)
from collage.backends.relax.static_shape import static_shape
from collage.backends.relax.strided_views import View

LAYOUTS = {"NHWC": "OHWI", "NCHW": "OIHW"}
"""Layouts of the data, and of the weights that go with each."""


def conv2d_graph(call: relax.Call, epilogue: Epilogue, _: CudnnOptions) -> Graph:
    """A convolution with its epilogue. Slots: data, weights, bias, residual, result.

    Parameters
    ----------
    call : relax.Call
        Of ``relax.nn.conv2d``.

    Raises
    ------
    UnsupportedProblemError
        When cuDNN cannot run it.
    """
    attrs = call.attrs
    layout, weights_layout = str(attrs.data_layout), str(attrs.kernel_layout)
    out_layout = str(attrs.out_layout or layout)
    if LAYOUTS.get(layout) != weights_layout or out_layout != layout:
        raise UnsupportedProblemError(
            f"layouts {layout}, {weights_layout} to {out_layout}; only NHWC with OHWI and "
            "NCHW with OIHW are supported"
        )
    dtype = same_dtype(*call.args, call)
    x, w, y = (
        _view(static_shape(expr, what), given, wanted)
        for expr, what, given, wanted in (
            (call.args[0], "the data", layout, "NCHW"),
            (call.args[1], "the weights", weights_layout, "OIHW"),
            (call, "the result", layout, "NCHW"),
        )
    )
    padding = [int(width) for width in attrs.padding]
    if min(padding) < 0:
        raise UnsupportedProblemError(f"padding {padding} is negative")
    # The number of groups is what the weights lack of the data's channels.
    builder = GraphBuilder(dtype)
    inputs = (builder.input(x), builder.input(w))
    strides, dilation = ([int(step) for step in steps] for steps in (attrs.strides, attrs.dilation))
    value = builder.apply(Kind.CONV, inputs, y, [*padding, *strides, *dilation])
    bias = None
    if epilogue.bias is not None:
        result = static_shape(call, "the result")
        axis = layout.index("C")
        check_bias(epilogue.bias, result, axis)
        shape = tuple(extent if index == axis else 1 for index, extent in enumerate(result))
        bias = _view(shape, layout, "NCHW")
    add_epilogue(builder, value, epilogue, y, bias)
    return builder.finish()


def _view(shape: tuple[int, ...], layout: str, wanted: str) -> View:
    return View.dense(shape).permuted([layout.index(axis) for axis in wanted])


def matmul_graph(call: relax.Call, epilogue: Epilogue, options: CudnnOptions) -> Graph:
    """A matrix product with its epilogue. Slots: left, right, bias, residual, result.

    Parameters
    ----------
    call : relax.Call
        Of ``relax.matmul``, (..., m, k) with (k, n) or with (..., k, n) of the same batch.

    Raises
    ------
    UnsupportedProblemError
        When cuDNN cannot run it.
    """
    dtype = same_dtype(*call.args, call)
    left, right, result = (
        static_shape(expr, what)
        for expr, what in (
            (call.args[0], "the left operand"),
            (call.args[1], "the right operand"),
            (call, "the result"),
        )
    )
    if len(left) < 2 or len(right) < 2:
        raise UnsupportedProblemError(f"operands of shapes {left} and {right} are not matrices")
    if len(right) == 2:
        batch, rows = 1, math.prod(left[:-1])
    elif left[:-2] == right[:-2]:
        batch, rows = math.prod(left[:-2]), left[-2]
    else:
        raise UnsupportedProblemError(f"operands of shapes {left} and {right} are broadcast")
    inner, columns = right[-2:]
    if dtype == "float32" and not options.allow_tf32:
        raise UnsupportedProblemError(
            "cuDNN multiplies float32 matrices in TF32; allow_tf32 is off"
        )
    builder = GraphBuilder(dtype)
    inputs = (
        builder.input(View.dense((batch, rows, inner))),
        builder.input(View.dense((batch, inner, columns))),
    )
    view = View.dense((batch, rows, columns))
    value = builder.apply(Kind.MATMUL, inputs, view)
    bias = None
    if epilogue.bias is not None:
        check_bias(epilogue.bias, result, len(result) - 1)
        bias = View.dense((1, 1, columns))
    add_epilogue(builder, value, epilogue, view, bias)
    return builder.finish()
