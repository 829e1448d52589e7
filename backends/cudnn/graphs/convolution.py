"""Convolutions of one to three spatial axes and their transposes, with epilogues, as cuDNN graphs.

A transposed convolution is what cuDNN calls the gradient of a convolution's data: its input stands
where that convolution's result does, and its weights are the same.
"""

from __future__ import annotations

from tvm import relax

from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.cudnn.graphs.epilogue import Epilogue, add_epilogue, check_bias, same_dtype
from collage.backends.cudnn.graphs.spatial import per_axis, plane_view
from collage.backends.cudnn.options import CudnnOptions
from collage.backends.cudnn.problem import Graph, GraphBuilder, Kind
from collage.backends.relax.calls.pooling import SPATIAL, split_padding
from collage.backends.relax.static_shape import static_shape

CONVOLUTIONS = tuple(f"conv{rank}d{kind}" for kind in ("_transpose", "") for rank in SPATIAL)
"""Operators, without ``relax.nn.``; no name follows one that it begins with."""


def convolution_graph(call: relax.Call, epilogue: Epilogue, _: CudnnOptions) -> Graph:
    """A convolution with its epilogue. Slots: data, weights, bias, residual, result.

    Parameters
    ----------
    call : relax.Call
        Of one of :data:`CONVOLUTIONS`.
    epilogue : Epilogue
        What follows it in the same graph.
    _ : CudnnOptions
        Not asked; each kind of graph is made by the same arguments.

    Returns
    -------
    Graph
        With two spatial axes or more: a convolution along one gets another of extent 1.

    Raises
    ------
    UnsupportedProblemError
        When cuDNN cannot run it.

    Examples
    --------
    >>> shapes = (1, 8, 8, 16), (4, 3, 3, 16)
    >>> x, w = (relax.Var("x", relax.TensorType(of, "float16")) for of in shapes)
    >>> layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    >>> call = relax.BlockBuilder().normalize(relax.op.nn.conv2d(x, w, padding=1, **layouts))
    >>> convolution_graph(call, Epilogue(), CudnnOptions()).name
    'conv float16 1x16x8x8 4x16x3x3 1x4x8x8'
    """
    attrs = call.attrs
    space = SPATIAL[len(attrs.strides)]
    transposed = str(call.op.name).endswith("_transpose")
    # The axis that comes first in memory is that of the untransposed convolution's results.
    filters = "IO" if transposed else "OI"
    layout, out_layout = str(attrs.data_layout), str(attrs.out_layout or attrs.data_layout)
    wanted = {f"N{space}C": f"{filters[0]}{space}{filters[1]}", f"NC{space}": f"{filters}{space}"}
    weights_layout = str(attrs.kernel_layout)
    if wanted.get(layout) != weights_layout or out_layout != layout:
        pairs = " and ".join(f"{data} with {weights}" for data, weights in wanted.items())
        raise UnsupportedProblemError(
            f"layouts {layout}, {weights_layout} to {out_layout}; only {pairs} are supported"
        )
    if transposed and layout[-1] != "C" and epilogue != Epilogue():
        # Seen with 9.28 on an H100: no engine, fused or not.
        raise UnsupportedProblemError(
            f"cuDNN joins nothing to a transposed convolution in {layout}; only to one in N{space}C"
        )
    dtype = same_dtype(*call.args, call)
    result = static_shape(call, "the result")
    x = plane_view(static_shape(call.args[0], "the data"), layout, "NC")
    w = plane_view(static_shape(call.args[1], "the weights"), weights_layout, filters)
    y = plane_view(result, layout, "NC")
    padding = [int(width) for width in attrs.padding]
    if min(padding) < 0:
        raise UnsupportedProblemError(f"padding {padding} is negative")
    before, after = split_padding(padding, len(space))
    strides, dilation = ([int(step) for step in steps] for steps in (attrs.strides, attrs.dilation))
    # Output padding is less than a stride, in Relax: so much more data makes the untransposed
    # convolution no other place, and what is behind the result needs no other padding.
    # The number of groups is what the weights lack of the data's channels.
    builder = GraphBuilder(dtype)
    inputs = (builder.input(x), builder.input(w))
    ints = per_axis((before, 0), (after, 0), (strides, 1), (dilation, 1))
    value = builder.apply(Kind.CONV_DGRAD if transposed else Kind.CONV, inputs, y, ints)
    bias = None
    if epilogue.bias is not None:
        axis = layout.index("C")
        check_bias(epilogue.bias, result, axis)
        shape = [extent if index == axis else 1 for index, extent in enumerate(result)]
        bias = plane_view(shape, layout, "NC")
    add_epilogue(builder, value, epilogue, y, bias)
    return builder.finish()
