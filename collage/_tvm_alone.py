"""TVM imported without PyTorch, which it imports wherever that is installed, and for its own use.

That takes seconds and 140 MB, whatever the model is. Who uses PyTorch has imported it, or imports
it afterwards; tensors are exchanged by protocols that both have.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_NOT_IMPORTED = "torch"


class _Missing:
    """Finds nothing, and for one thread says that a package is not there."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for all but what is missing; see :class:`importlib.abc.MetaPathFinder`."""
        if name == _NOT_IMPORTED and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"no module named '{name}' while TVM is imported", name=name)
        return None


def import_tvm() -> None:
    """Import TVM, unless it is there already, and leave PyTorch out, unless that is.

    Other threads may import PyTorch meanwhile.

    Examples
    --------
    >>> import_tvm()
    >>> "tvm" in sys.modules
    True
    """
    if "tvm_ffi" in sys.modules or _NOT_IMPORTED in sys.modules:
        return
    missing = _Missing()
    sys.meta_path.insert(0, missing)
    try:
        import tvm  # noqa: F401 - for it to be there
    finally:
        sys.meta_path.remove(missing)
