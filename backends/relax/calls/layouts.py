"""Layouts of pictures and their kernels, as operators name them, and permutations between them."""

from __future__ import annotations

import tvm
from tvm import relax


def spatial_rank(call: relax.Call) -> int:
    """Number of spatial axes, from the operator's name: 2 for ``conv2d``.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((1, 8, 6, 6), "float32"))
    >>> spatial_rank(relax.op.nn.max_pool2d(x, (3, 3)))
    2
    """
    return int(next(c for c in str(call.op.name) if c.isdigit()))


def data_layout(call: relax.Call) -> str:
    """The layout of an operator's data, whichever attribute names it.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((1, 6, 6, 8), "float32"))
    >>> data_layout(relax.op.nn.max_pool2d(x, layout="NHWC"))
    'NHWC'
    """
    attrs = call.attrs
    return str(attrs.data_layout if hasattr(attrs, "data_layout") else attrs.layout)


def order(source: str, wanted: str) -> list[int]:
    """The permutation that turns one layout into another.

    Parameters
    ----------
    source, wanted : str
        Layouts, whose letters name axes, such as ``NHWC``.

    Returns
    -------
    list of int
        For each wanted axis, its position in the source.

    Examples
    --------
    >>> order("NHWC", "NCHW")
    [0, 3, 1, 2]
    """
    return [source.index(axis) for axis in wanted]


def permutation_of(call: relax.Call) -> list[int] | None:
    """The axes of a ``layout_transform`` that only permutes them, else None.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((2, 3, 8), "float32"))
    >>> turned = relax.op.layout_transform(x, lambda n, h, c: (n, c, h))
    >>> blocked = relax.op.layout_transform(x, lambda n, h, c: (n, c // 4, h, c % 4))
    >>> permutation_of(turned), permutation_of(blocked)
    ([0, 2, 1], None)
    """
    index_map = call.attrs.index_map
    axes = list(index_map.initial_indices)
    permuted = []
    for index in index_map.final_indices:
        place = next((i for i, axis in enumerate(axes) if axis.same_as(index)), None)
        if place is None:
            return None
        permuted.append(place)
    return permuted if sorted(permuted) == list(range(len(axes))) else None


def permutation(expr: relax.Expr) -> list[int] | None:
    """The axes of a ``permute_dims`` call, counted from 0, or None for anything else.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((2, 3, 5), "float32"))
    >>> permutation(relax.op.permute_dims(x, [0, -1, 1])), permutation(x)
    ([0, 2, 1], None)
    """
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, tvm.ir.Op):
        # FuseOpsByPattern goes over a module pattern by pattern: calls of what it made are met.
        return None
    if expr.op.name != "relax.permute_dims":
        return None
    rank = int(expr.args[0].ty.ndim)
    axes = expr.attrs.axes
    given = list(reversed(range(rank))) if axes is None else [int(axis) for axis in axes]
    return [axis % rank for axis in given]


_ALONG_CHANNELS = frozenset(
    f"relax.{name}" for name in ("mean", "sum", "max", "nn.softmax", "nn.group_norm", "concat")
)


def depends_on_layout(value: relax.Expr) -> bool:
    """Whether what an operator takes may depend on where its pictures have their channels.

    Parameters
    ----------
    value : relax.Expr
        A binding's.

    Returns
    -------
    bool
        True of convolutions, pools and resizing, and of what goes along an axis.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((1, 2, 4, 4), "float32"))
    >>> depends_on_layout(relax.op.nn.max_pool2d(x)), depends_on_layout(relax.op.nn.relu(x))
    (True, False)
    """
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return False
    named = any(hasattr(value.attrs, name) for name in ("data_layout", "layout"))
    return named or str(value.op.name) in _ALONG_CHANNELS
