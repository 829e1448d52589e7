"""What TVM's modules import, as an object that is linked with their code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tvm

from collage.backends.toolchain.elf.data_object import write_data_object

_SYMBOL = "__tvm_ffi__library_bin"
"""Where TVM looks for it in a library (``tvm_ffi::symbol::tvm_ffi_library_bin``)."""


def pack_imports(
    module: tvm.runtime.Module, is_system_lib: bool, prefix: str, workspace: str, *, like: Path
) -> str:
    """What an executable brings along besides code, its weights above all, as data to be linked.

    TVM has LLVM compile that, which holds the weights four times over meanwhile.

    Parameters
    ----------
    module : tvm.runtime.Module
        Of the executable.
    is_system_lib : bool
        Whether it is to be registered when a program starts, which nothing here asks for.
    prefix : str
        Of the symbol.
    workspace : str
        Folder for the object.
    like : Path
        An object of the compiler's.

    Returns
    -------
    str
        The object.
    """
    assert not is_system_lib
    packed = np.from_dlpack(tvm.get_global_func("runtime.ModulePackImportsToTensor")(module))
    output = Path(workspace) / "imports.o"
    return str(write_data_object({f"{prefix}{_SYMBOL}": packed}, output, like, hidden=False))
