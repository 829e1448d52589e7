"""Operator kinds of high-level Relax operators, as TVM's fusion sees them after legalization.

TVM derives a kind from the loops of a legalized PrimFunc (``AnnotateTIROpPattern``); candidates are
enumerated long before that, on operators, so the kinds stand here in a table. A test legalizes one
call of every operator named here and compares.
"""

from __future__ import annotations

import enum


class OpKind(enum.IntEnum):
    """TVM's ``OpPatternKind`` (``relay/op_attr_types.h``), with one kind of our own, ``HOST``.

    Examples
    --------
    >>> kind_of("nn.conv2d").name, kind_of("nn.relu").name
    ('OUT_EWISE_FUSABLE', 'ELEMWISE')
    >>> kind_of("no.such_operator").name
    'OPAQUE'
    """

    ELEMWISE = 0
    """One output element from the input elements at the same place."""
    BROADCAST = 1
    INJECTIVE = 2
    """Every output element comes from one place: reshape, transpose, concat, pad."""
    COMM_REDUCE = 3
    OUT_EWISE_FUSABLE = 4
    """Element-wise operators may follow in the same kernel: convolution, matmul, pooling."""
    TUPLE = 7
    OPAQUE = 8
    """Not fused with anything."""
    HOST = 9
    """Stays in ``main``: tuple items, shapes, calls of functions that are compiled already."""


def _names(text: str, kind: OpKind) -> dict[str, OpKind]:
    return dict.fromkeys(text.split(), kind)


_KINDS: dict[str, OpKind] = {
    **_names(
        "abs acos acosh asin asinh atan atanh bitwise_not ceil clip cos cosh erf exp floor isfinite"
        " isinf isnan log logical_not negative round rsqrt sigmoid sign sin sinh sqrt square tan"
        " tanh trunc astype ewise_fma nn.relu nn.gelu nn.gelu_tanh nn.silu nn.selu nn.softplus"
        " nn.leakyrelu nn.prelu strided_slice tril triu full full_like zeros zeros_like ones"
        " ones_like where",
        OpKind.ELEMWISE,
    ),
    **_names(
        # Binary operators: BROADCAST where no operand has the result's shape.
        "add subtract multiply divide floor_divide mod floor_mod power maximum minimum atan2"
        " log_add_exp equal not_equal less less_equal greater greater_equal logical_and logical_or"
        " logical_xor bitwise_and bitwise_or bitwise_xor left_shift right_shift",
        OpKind.ELEMWISE,
    ),
    **_names(
        "broadcast_to expand_dims squeeze stack one_hot outer",
        OpKind.BROADCAST,
    ),
    **_names(
        "concat split reshape flatten permute_dims nn.batch_flatten nn.pad nn.pixel_shuffle tile"
        " repeat flip image.resize2d layout_transform take gather_elements gather_nd index_tensor",
        OpKind.INJECTIVE,
    ),
    **_names("sum max min prod", OpKind.COMM_REDUCE),
    **_names(
        "matmul einsum argmax argmin mean variance std nn.conv1d nn.conv2d nn.conv3d"
        " nn.conv1d_transpose"
        " nn.conv2d_transpose nn.conv3d_transpose nn.max_pool1d nn.max_pool2d nn.max_pool3d"
        " nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.adaptive_avg_pool1d"
        " nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d nn.softmax nn.log_softmax nn.layer_norm"
        " nn.group_norm nn.instance_norm nn.rms_norm nn.batch_norm nn.attention",
        OpKind.OUT_EWISE_FUSABLE,
    ),
    **_names("tuple", OpKind.TUPLE),
    **_names(
        "tuple_get_item shape constant var prim_value match_cast shape_of tensor_to_shape",
        OpKind.HOST,
    ),
}


def kind_of(op_name: str) -> OpKind:
    """The kind of an operator by its name without ``relax.``; unknown operators are opaque.

    ``call:<name>`` calls a function of the module that is compiled already: it stays in ``main``.
    """
    if op_name.startswith("call:"):
        return OpKind.HOST
    return _KINDS.get(op_name, OpKind.OPAQUE)
