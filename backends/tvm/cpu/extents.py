"""Which convolutions the packed kernels take: in float32, TVM's own layouts, known extents."""

from __future__ import annotations

from tvm import relax

from collage.backends.relax.static_shape import tensor_shape

Extents = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def convolution_extents(call: relax.Call, axes: str) -> Extents | None:
    """The extents of a convolution's data, weights and result.

    Parameters
    ----------
    call : relax.Call
        Of ``nn.conv1d``, ``nn.conv2d`` or ``nn.conv3d``.
    axes : str
        Of a sample, as layouts name them, for example ``HW``.

    Returns
    -------
    tuple of tuple of int, or None
        None where they are not known, where any is 0, in other layouts and other types.

    Examples
    --------
    >>> data, weights = (
    ...     relax.Var(name, relax.TensorType(shape, "float32"))
    ...     for name, shape in (("x", (1, 3, 8, 8)), ("w", (4, 3, 3, 3)))
    ... )
    >>> call = relax.BlockBuilder().normalize(relax.op.nn.conv2d(data, weights))
    >>> convolution_extents(call, "HW")
    ((1, 3, 8, 8), (4, 3, 3, 3), (1, 4, 6, 6))
    >>> convolution_extents(call, "DHW") is None
    True
    """
    attrs = call.attrs
    layout = f"NC{axes}"
    if (attrs.data_layout, attrs.kernel_layout) != (layout, f"OI{axes}"):
        return None
    data, weights, result = (tensor_shape(one) for one in (*call.args, call))
    if data is None or weights is None or result is None or 0 in (*data, *weights, *result):
        return None
    return (
        (data, weights, result) if attrs.out_layout in (layout, "") and all_float32(call) else None
    )


def all_float32(call: relax.Call) -> bool:
    """Whether a call's tensors, its result among them, are of float32."""
    return all(str(one.ty.dtype) == "float32" for one in (*call.args, call))
