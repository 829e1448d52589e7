"""C source of tensor programs, for compilers that TVM's LLVM knows nothing of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import tvm

from collage.backends.contract import BuildContext
from collage.backends.toolchain.native import static_library

_CONTEXT = "void* __tvm_ffi__library_ctx = NULL;"


def _c_source(programs: tvm.IRModule) -> str:
    """The C source of scheduled tensor programs, one exported function each."""
    target = tvm.target.Target("c", host="c")
    with target:
        text = str(tvm.tirx.build(programs, target=target).inspect_source())
    # Every file would define it; the one library that they are linked into has it once.
    return text.replace(_CONTEXT, f"__attribute__((weak)) {_CONTEXT}")


def c_library(
    programs: tvm.IRModule,
    context: BuildContext,
    *,
    compiler: str = "",
    flags: Sequence[str] = (),
) -> tvm.runtime.Module:
    """A static library of tensor programs that a C compiler made.

    Parameters
    ----------
    programs : tvm.IRModule
        Of ``PrimFunc``s with a ``global_symbol``.
    context : BuildContext
        Where to build.
    compiler : str
        The driver of a cross compiler, such as ``aarch64-linux-gnu-g++``; by default the context's.
    flags : sequence of str
        More of its flags, such as ``-march=...``.

    Returns
    -------
    tvm.runtime.Module
        It exports the programs' global symbols.

    Raises
    ------
    CompileError
        When the compiler is missing or fails; carries its standard error.
    """
    symbols = [str(program.attrs["global_symbol"]) for program in programs.functions.values()]
    include = Path(tvm.__file__).parent / "include"
    return static_library(
        _c_source(programs),
        symbols,
        replace(context, cxx=compiler or context.cxx),
        suffix=".c",
        flags=[f"-I{include}", *flags],
    )
