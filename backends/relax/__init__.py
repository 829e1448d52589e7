"""What backends of many kinds ask of Relax: patterns, partition functions, shapes, layouts.

To say what it takes, a backend builds patterns from a :class:`Chain` and predicates from
:func:`derives`. To compile a partition function it takes the one composite apart
(:class:`CompositeCall`) or walks through many (:class:`PartitionWalk`); :func:`static_shape` and
:class:`View` say how tensors lie in memory. What rewrites partitioned modules before their code is
generated stands here too. Nothing here knows a backend.

Backends import the modules: their source digests follow those that they name, and no others.
"""

from collage.backends.relax.builder_stacks import separate_builder_stacks
from collage.backends.relax.calls.layouts import permutation
from collage.backends.relax.calls.pooling import PoolPadding
from collage.backends.relax.calls.strided_views import (
    View,
    matmul_views,
    operand_view,
    result_view,
    row_major_product,
)
from collage.backends.relax.modules.lift_constants import lift_constants
from collage.backends.relax.partitions.composites import Composite, CompositeCall, compiling
from collage.backends.relax.partitions.walk import PartitionWalk, registration
from collage.backends.relax.patterns import (
    ACTIVATIONS,
    Chain,
    all_of,
    derives,
    operator,
    with_activation,
    with_bias,
    with_residual,
)
from collage.backends.relax.recurrent import Recurrence
from collage.backends.relax.static_shape import static_shape, tensor_dtype, tensor_shape
from collage.backends.relax.stepped import stepped_matmul

__all__ = [
    "ACTIVATIONS",
    "Chain",
    "Composite",
    "CompositeCall",
    "PartitionWalk",
    "PoolPadding",
    "Recurrence",
    "View",
    "all_of",
    "compiling",
    "derives",
    "lift_constants",
    "matmul_views",
    "operand_view",
    "operator",
    "permutation",
    "registration",
    "result_view",
    "row_major_product",
    "static_shape",
    "stepped_matmul",
    "tensor_dtype",
    "tensor_shape",
    "with_activation",
    "with_bias",
    "with_residual",
]

# Here, for whatever of ours builds a Relax function imports from this package.
separate_builder_stacks()
