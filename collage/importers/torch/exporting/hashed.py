"""Numbers that tensors hold, as members of sets and keys of mappings, while PyTorch traces."""

from __future__ import annotations

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

_OTHERS_HASH = torch.SymInt.__hash__


def hash_of_number(number: torch.SymInt) -> int:
    """A hash that asks which number a tensor holds, as comparing it does.

    PyTorch calls such a number unhashable, which does not say that what runs depends on data
    (``len(set(lengths.tolist())) > 1``); asked, it says so, and which number that is.

    Raises
    ------
    torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode
        Where it is not known.
    """
    return hash(int(number)) if free_unbacked_symbols(number) else _OTHERS_HASH(number)
