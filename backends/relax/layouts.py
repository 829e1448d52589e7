"""Layouts of pictures and their kernels, as operators name them, and permutations between them."""

from __future__ import annotations

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
    """The layout of an operator's data, whichever attribute names it."""
    attrs = call.attrs
    return str(attrs.data_layout if hasattr(attrs, "data_layout") else attrs.layout)


def order(source: str, wanted: str) -> list[int]:
    """The permutation that turns one layout into another.

    Parameters
    ----------
    source, wanted : str
        Layouts, whose letters name axes, such as ``NHWC``.

    Examples
    --------
    >>> order("NHWC", "NCHW")
    [0, 3, 1, 2]
    """
    return [source.index(axis) for axis in wanted]


def permutation_of(call: relax.Call) -> list[int] | None:
    """The axes of a ``layout_transform`` that only permutes them, else None."""
    index_map = call.attrs.index_map
    axes = list(index_map.initial_indices)
    permuted = []
    for index in index_map.final_indices:
        place = next((i for i, axis in enumerate(axes) if axis.same_as(index)), None)
        if place is None:
            return None
        permuted.append(place)
    return permuted if sorted(permuted) == list(range(len(axes))) else None
