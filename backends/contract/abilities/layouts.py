"""In which layouts a backend's partitions take and give tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tvm import relax

from collage.backends.contract.target import BackendTarget


@runtime_checkable
class TakesLayouts(Protocol):
    """Has partitions that read and write pictures with channels last as well as channels first.

    A ``permute_dims`` between both at a partition's border is then no copy, but says how a kernel
    finds its input or leaves its result. The search chooses between them by what they take.

    Examples
    --------
    >>> class Mine:
    ...     def takes_other_layout(self, operators, target):
    ...         return any(operator.op.name == "relax.nn.conv2d" for operator in operators)
    >>> isinstance(Mine(), TakesLayouts), Mine().takes_other_layout([], None)
    (True, False)
    """

    def takes_other_layout(self, operators: Sequence[relax.Expr], target: BackendTarget) -> bool:
        """Whether a partition may be faster with other layouts at its border than it has inside.

        Parameters
        ----------
        operators : sequence of relax.Expr
            The values of the partition's bindings, in topological order.
        target : BackendTarget
            With this backend's options.

        Returns
        -------
        bool
            False spares the search the measurement.
        """
        ...
