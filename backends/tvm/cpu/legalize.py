"""How this backend expresses operators as tensor programs where TVM's own way is slow.

Weights that are constants are packed here, at compile time, into the layout that the kernel wants.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tvm import relax, te
from tvm.ir import GenericConst

from collage.backends.relax.kept_whole.running import NAME as RUNNING
from collage.backends.relax.kept_whole.sampling import NAME as SAMPLING
from collage.backends.relax.kept_whole.search import NAME as SEARCH
from collage.backends.relax.recurrent import NAME as RECURRENT
from collage.backends.relax.static_shape import tensor_shape
from collage.backends.relax.trees import NAME as TREES
from collage.backends.tvm.common.legalization import (
    OUT_FUSABLE,
    Legalization,
    default_legalization,
)
from collage.backends.tvm.common.numbers.exact import EXACT
from collage.backends.tvm.common.numbers.in_float32 import legalize_in_float32
from collage.backends.tvm.cpu.comparisons import COMPARISONS
from collage.backends.tvm.cpu.concat import legalize_concat
from collage.backends.tvm.cpu.extents import all_float32, convolution_extents
from collage.backends.tvm.cpu.fourier.kernel import legalize_fourier
from collage.backends.tvm.cpu.images.banded import legalize_banded
from collage.backends.tvm.cpu.images.pads import legalize_pad
from collage.backends.tvm.cpu.images.pools import legalize_pool
from collage.backends.tvm.cpu.images.resize import legalize_resize
from collage.backends.tvm.cpu.images.sampling import legalize_sampling
from collage.backends.tvm.cpu.norms import legalize_group_norm, legalize_instance_norm
from collage.backends.tvm.cpu.orders import orders
from collage.backends.tvm.cpu.recurrent import legalize_recurrent
from collage.backends.tvm.cpu.running import legalize_running
from collage.backends.tvm.cpu.scans import legalize_scan
from collage.backends.tvm.cpu.scatter import legalize_scatter_nd
from collage.backends.tvm.cpu.schedules import (
    Machine,
    conv2d,
    conv_plan,
    depthwise,
    flat_depthwise,
    matmul,
)
from collage.backends.tvm.cpu.search import legalize_search
from collage.backends.tvm.cpu.slices import legalize_slice_scatter
from collage.backends.tvm.cpu.transposed import transposed_convolutions
from collage.backends.tvm.cpu.trees import legalize_trees
from collage.backends.tvm.cpu.volumes import legalize_conv3d

_MOST_ROWS = 64


def legalizations(machine: Machine) -> Mapping[str, Legalization]:
    """This backend's legalizations, by operator name."""

    def convolution(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if call.op.name == "relax.nn.conv3d":
            return legalize_conv3d(builder, call, machine)
        return _legalize_conv2d(builder, call, machine)

    def product(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        found = legalize_banded(builder, call, machine)
        return _legalize_matmul(builder, call, machine) if found is None else found

    def row(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return _legalize_conv1d(builder, call, machine)

    def steps(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return legalize_recurrent(builder, call, machine)

    def trees(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return legalize_trees(builder, call, machine)

    def scatter(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return legalize_scatter_nd(builder, call, machine)

    def pool(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return legalize_pool(builder, call, machine)

    def resize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return legalize_resize(builder, call, machine)

    def scan(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return legalize_scan(builder, call, machine)

    def running(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return legalize_running(builder, call, machine)

    def search(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return legalize_search(builder, call, machine)

    def sampling(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return legalize_sampling(builder, call, machine)

    def slices(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return legalize_slice_scatter(builder, call, machine)

    return {
        RECURRENT: steps,
        RUNNING: running,
        SAMPLING: sampling,
        SEARCH: search,
        "relax.image.grid_sample": sampling,
        TREES: trees,
        "relax.nn.conv1d": row,
        "relax.nn.conv2d": convolution,
        "relax.nn.conv3d": convolution,
        "relax.matmul": product,
        **EXACT,
        **COMPARISONS,
        **transposed_convolutions(convolution),
        # With a scale, TVM's own gives float32 for float16, which whoever reads it refuses.
        "relax.nn.attention": legalize_in_float32,
        "relax.nn.attention_bias": legalize_in_float32,
        "relax.nn.group_norm": legalize_group_norm,
        "relax.nn.instance_norm": legalize_instance_norm,
        "relax.nn.pad": legalize_pad,
        "relax.image.resize2d": resize,
        "relax.scatter_nd": scatter,
        **orders(machine),
        "relax.cumsum": scan,
        "relax.cumprod": scan,
        "relax.concat": legalize_concat,
        "relax.slice_scatter": slices,
        **{f"relax.nn.{kind}_pool{n}d": pool for kind in ("max", "avg") for n in (1, 2, 3)},
    }


def _legalize_conv2d(builder: relax.BlockBuilder, call: relax.Call, machine: Machine) -> relax.Expr:
    """Packed convolution in float32; TVM's own for all else."""
    shape = _conv_shape(call)
    if shape is None:
        return default_legalization(builder, call)
    if depthwise.applies(shape):
        return _depthwise_convolution(builder, call, shape, machine)
    return _packed_convolution(builder, call, shape, machine)


def _depthwise_convolution(
    builder: relax.BlockBuilder, call: relax.Call, shape: conv_plan.ConvShape, machine: Machine
) -> relax.Expr:
    lanes = machine.lanes("float32")
    flat = len(tensor_shape(call) or ()) == 4 and flat_depthwise.pays(shape, lanes)

    def convolved(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        if flat:
            return flat_depthwise.compute(x, w, shape, lanes)
        return depthwise.compute(x, w, shape)

    return builder.call_te(
        convolved,
        *call.args,
        primfunc_name_hint="depthwise_convolution",
        primfunc_attrs=OUT_FUSABLE,
    )


def _packed_convolution(
    builder: relax.BlockBuilder, call: relax.Call, shape: conv_plan.ConvShape, machine: Machine
) -> relax.Expr:
    """The packed kernel; weights that are constants are packed already."""
    data, weights = call.args
    cut = conv_plan.plan(shape, machine)
    constant = isinstance(weights, GenericConst)
    if constant:
        array = weights.value.numpy()
        array = array.reshape(*array.shape[:2], *shape.kernel)
        weights = relax.const(conv2d.pack_weights(array, shape, cut.tile))

    def product(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        packed = w if constant else conv2d.packed_weights(w, shape, cut.tile)
        return conv2d.compute(x, packed, shape, cut)

    return builder.call_te(
        product,
        data,
        weights,
        primfunc_name_hint="conv2d",
        primfunc_attrs=OUT_FUSABLE,
    )


def _legalize_conv1d(builder: relax.BlockBuilder, call: relax.Call, machine: Machine) -> relax.Expr:
    """As an image where our kernels take that; TVM's own for all else."""
    shape = _signal_shape(call)
    if shape is None:
        return default_legalization(builder, call)
    if depthwise.applies(shape):
        return _depthwise_convolution(builder, call, shape, machine)
    return _packed_convolution(builder, call, shape, machine)


def _signal_shape(call: relax.Call) -> conv_plan.ConvShape | None:
    """A convolution along one axis as one of an image of one row; of several rows where places are
    convolved one by one, for those may be worked off in pieces that stay in the caches."""
    attrs, extents = call.attrs, convolution_extents(call, "W")
    if extents is None:
        return None
    (batch, channels, length), kernel, result = extents
    before, behind = (int(width) for width in attrs.padding)
    by_channel = kernel[1] == 1 and int(attrs.groups) > 1
    alone = kernel[2] == 1 and result[2] == length and not before and not by_channel
    rows = max(n for n in range(1, _MOST_ROWS + 1) if length % n == 0) if alone else 1
    return conv_plan.ConvShape(
        batch=batch,
        channels=channels,
        height=rows,
        width=length // rows,
        out_channels=kernel[0],
        kernel=(1, kernel[2]),
        strides=(1, int(attrs.strides[0])),
        padding=(0, before, 0, behind),
        dilation=(1, int(attrs.dilation[0])),
        groups=int(attrs.groups),
    )


def _legalize_matmul(builder: relax.BlockBuilder, call: relax.Call, machine: Machine) -> relax.Expr:
    """Tiled product of float32 matrices, with constant right operands packed."""
    shape = _matmul_shape(call)
    if shape is None:
        return default_legalization(builder, call)
    left, right = call.args
    if shape.constant_b and (found := legalize_fourier(builder, call, machine)) is not None:
        return found
    tile = matmul.choose_tile(shape, machine)
    if shape.constant_b:
        right = relax.const(matmul.pack_b(right.value.numpy(), tile))
    return builder.call_te(
        lambda a, b: matmul.compute(a, b, shape, tile),
        left,
        right,
        primfunc_name_hint="matmul",
        primfunc_attrs=OUT_FUSABLE,
    )


def _conv_shape(call: relax.Call) -> conv_plan.ConvShape | None:
    """The figures of a convolution that the packed kernel takes, else None."""
    attrs, extents = call.attrs, convolution_extents(call, "HW")
    if extents is None:
        return None
    (batch, channels, height, width), (out, _, kernel_h, kernel_w), _ = extents
    padding = [int(v) for v in attrs.padding]
    strides = [int(v) for v in attrs.strides]
    dilation = [int(v) for v in attrs.dilation]
    return conv_plan.ConvShape(
        batch=batch,
        channels=channels,
        height=height,
        width=width,
        out_channels=out,
        kernel=(kernel_h, kernel_w),
        strides=(strides[0], strides[1]),
        padding=(padding[0], padding[1], padding[2], padding[3]),
        dilation=(dilation[0], dilation[1]),
        groups=int(attrs.groups),
    )


def _matmul_shape(call: relax.Call) -> matmul.MatmulShape | None:
    """The figures of a matrix product that the tiled kernel takes, else None."""
    left, right = call.args
    a, b, out = tensor_shape(left), tensor_shape(right), tensor_shape(call)
    if a is None or b is None or out is None or len(a) < 2 or len(b) < 2 or 0 in (*a, *b):
        return None
    if not all_float32(call):
        return None
    constant = isinstance(right, GenericConst) and len(b) == 2
    lead = out[:-1]
    # A B without batch axes is shared by the whole of A, which then is one tall matrix, unless its
    # fused axes would have to be cut unevenly: TVM cannot follow such indices.
    whole = sum(dim > 1 for dim in lead) <= 1 or math.prod(lead) % matmul.MOST_ROWS == 0
    batch_axes = 0 if len(b) == 2 and whole else len(lead) - 1
    return matmul.MatmulShape(lead, batch_axes, a[-1], b[-1], constant)
