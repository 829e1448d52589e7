"""Converters of PyTorch's operators that TVM's translator lacks or gets wrong, a family a file.

:data:`CONVERTERS` has all of them by operator; what is better taken apart by PyTorch itself is in
:func:`decompositions`. A converter refuses a node by :class:`RefusedError`; of what nothing
converts, :func:`reason_of` says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collage._on_demand import on_demand

if TYPE_CHECKING:
    from collage.importers.torch.operators.converters import CONVERTERS
    from collage.importers.torch.operators.decomposition_table import decompositions
    from collage.importers.torch.operators.errors import RefusedError, reason_of

__all__ = ["CONVERTERS", "RefusedError", "decompositions", "reason_of"]

# On demand: all of it needs PyTorch.
__getattr__, __dir__ = on_demand(
    __name__,
    {
        "converters": ("CONVERTERS",),
        "decomposition_table": ("decompositions",),
        "errors": ("RefusedError", "reason_of"),
    },
)
