"""Tensors of a region as its runtime in C is told of them."""

from __future__ import annotations

from collage.backends.relax.tensor_spec import TensorSpec

DL_TYPES = {
    **dict.fromkeys(("float64", "float32", "float16"), "kDLFloat"),
    **dict.fromkeys(("int8", "int16", "int32", "int64"), "kDLInt"),
    **dict.fromkeys(("uint8", "uint16", "uint32", "uint64"), "kDLUInt"),
    "bfloat16": "kDLBfloat",
    "bool": "kDLBool",
}
"""Relax dtypes and ``DLDataTypeCode``."""


def region_tensor(tensor: TensorSpec) -> str:
    """A tensor as the initializer of a ``collage_region_tensor`` (``collage_region.h``).

    Examples
    --------
    >>> region_tensor(TensorSpec((2, 3), "float16")), region_tensor(TensorSpec((), "bool"))
    ('{ { kDLFloat, 16, 1 }, 2, { 2, 3 } }', '{ { kDLBool, 8, 1 }, 0, { 0 } }')
    """
    kind = f"{{ {DL_TYPES[tensor.dtype]}, {tensor.bits}, 1 }}"
    extents = ", ".join(map(str, tensor.shape or (0,)))
    return f"{{ {kind}, {len(tensor.shape)}, {{ {extents} }} }}"
