"""Partition functions taken apart: one composite by itself, or a walk through many.

:class:`CompositeCall` is for backends whose partitions hold one composite, :class:`PartitionWalk`
for those that compile regions: a handler for each operator, filed by :func:`registration`.
:func:`compiling` names the partition in the errors of both.
"""

from collage.backends.relax.partitions.composites import Composite, CompositeCall, compiling
from collage.backends.relax.partitions.walk import PartitionWalk, flatten, registration

__all__ = [
    "Composite",
    "CompositeCall",
    "PartitionWalk",
    "compiling",
    "flatten",
    "registration",
]
