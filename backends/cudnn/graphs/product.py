"""Matrix products, with their epilogues, as cuDNN graphs."""

from __future__ import annotations

import math

from tvm import relax

from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.cudnn.graphs.epilogue import (
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
from collage.backends.relax.calls.strided_views import View
from collage.backends.relax.static_shape import static_shape


def matmul_graph(call: relax.Call, epilogue: Epilogue, options: CudnnOptions) -> Graph:
    """A matrix product with its epilogue. Slots: left, right, bias, residual, result.

    Parameters
    ----------
    call : relax.Call
        Of ``relax.matmul``, (..., m, k) with (k, n) or with (..., k, n) of the same batch.
    epilogue : Epilogue
        What follows it in the same graph.
    options : CudnnOptions
        Whether float32 may be multiplied as TF32; otherwise it is refused.

    Returns
    -------
    Graph
        On three axes (batch, rows, columns); rows of all batches are one axis where ``right`` is
        (k, n).

    Raises
    ------
    UnsupportedProblemError
        When cuDNN cannot run it.

    Examples
    --------
    >>> x, w = (relax.Var("x", relax.TensorType(of, "float16")) for of in ((4, 8), (8, 2)))
    >>> call = relax.BlockBuilder().normalize(relax.op.matmul(x, w))
    >>> matmul_graph(call, Epilogue(), CudnnOptions()).name
    'matmul float16 1x4x8 1x8x2 1x4x2'
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
