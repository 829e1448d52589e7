"""What one operator's call says: its arguments, layouts and windows, and how its operands lie.

Code generators ask these questions of a call instead of reading its attributes: axes come counted
from 0, padding comes before and after, and a :class:`View` is an operand with its permutations
folded into strides.
"""

from collage.backends.relax.calls.arguments import (
    Slice,
    attention_scale,
    axes_of,
    extents,
    number,
    operator_name,
)
from collage.backends.relax.calls.layouts import (
    data_layout,
    order,
    permutation,
    permutation_of,
    spatial_rank,
)
from collage.backends.relax.calls.pooling import SPATIAL, PoolPadding, split_padding
from collage.backends.relax.calls.strided_views import (
    View,
    matmul_views,
    operand_view,
    result_view,
    row_major_product,
)

__all__ = [
    "SPATIAL",
    "PoolPadding",
    "Slice",
    "View",
    "attention_scale",
    "axes_of",
    "data_layout",
    "extents",
    "matmul_views",
    "number",
    "operand_view",
    "operator_name",
    "order",
    "permutation",
    "permutation_of",
    "result_view",
    "row_major_product",
    "spatial_rank",
    "split_padding",
]
