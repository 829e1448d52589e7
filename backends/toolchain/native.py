"""What compiled code is put together from: objects of our own, constants, and static libraries."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tvm

from collage.backends.contract import BuildContext
from collage.backends.toolchain.compiling import (
    FFI_HEADER,
    TEMPLATES,
    cached_compilation,
    compile_object,
    ffi_include_flags,
    run_tool,
)
from collage.backends.toolchain.elf.data_object import MOST, write_data_object
from collage.backends.toolchain.weight_files import (
    is_beside,
    reference_flags,
    room_lines,
    write_weight,
)


def num_threads_object(context: BuildContext) -> Path:
    """The object with ``collage_num_threads`` and ``collage_use_thread_pool``.

    A library backend merges it into its own, so that its static library is whole by itself.
    """
    source = TEMPLATES / "num_threads.c"
    flags = ["-fopenmp", f"-DCOLLAGE_NUM_THREADS={context.num_threads}"]
    return cached_compilation(source, context, flags).run()


def thread_pool_object(context: BuildContext) -> Path:
    """The object that puts TVM's parallel loops on the OpenMP pool."""
    depends = [TEMPLATES / "denormal_flags.h"]
    return cached_compilation(TEMPLATES / "thread_pool.c", context, ["-fopenmp"], depends).run()


def denormals_object(context: BuildContext) -> Path:
    """The object with ``collage_flush_denormals`` and ``collage_restore_denormals``."""
    flags = ["-fopenmp", f"-DCOLLAGE_NUM_THREADS={context.num_threads}", *ffi_include_flags()]
    depends = [FFI_HEADER, TEMPLATES / "num_threads.c", TEMPLATES / "denormal_flags.h"]
    return cached_compilation(TEMPLATES / "denormals.c", context, flags, depends).run()


def weights_object(context: BuildContext) -> Path:
    """The object that maps weights in files, and gives them to TVM's virtual machine."""
    depends = [FFI_HEADER, TEMPLATES / "weights.h"]
    return cached_compilation(TEMPLATES / "weights.cc", context, ffi_include_flags(), depends).run()


def constant_symbol(array: np.ndarray) -> str:
    """The C symbol of a constant: named by content, so equal constants share one copy."""
    digest = hashlib.sha256(f"{array.dtype}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)
    return f"collage_const_{digest.hexdigest()[:24]}"


def constant_object(
    constants: Mapping[str, np.ndarray], output: Path, context: BuildContext
) -> Path:
    """Make an object that holds constants as read-only data, 64-byte aligned.

    Each constant stands in a COMDAT group of its own, so that the final link keeps one copy however
    many objects bring it. The file is mapped, not read, when the library is loaded. Where the
    context names a folder for weights, large ones go to files there, which the library maps.

    Parameters
    ----------
    constants : mapping of str to ndarray
        By symbol, see :func:`constant_symbol`.
    output : Path
        The object; its folder is made where it is missing.
    context : BuildContext
        Names the compiler.

    Returns
    -------
    Path
        ``output``.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    lines, inside = [], []
    for symbol, array in constants.items():
        if is_beside(array.nbytes, context):
            write_weight(symbol, array, context)
            lines += room_lines(symbol, array.nbytes)
        else:
            inside.append((symbol, array))
    like = num_threads_object(context)
    if not lines and len(inside) <= MOST:
        return write_data_object(dict(inside), output, like)
    parts = []
    if lines:
        rooms = output.with_suffix(".s")
        lines.append('.section .note.GNU-stack,"",@progbits')
        rooms.write_text("\n".join(lines) + "\n", encoding="utf-8")
        parts.append(compile_object(rooms, output.with_suffix(".rooms.o"), context))
    for begin in range(0, len(inside), MOST):
        part = output.with_suffix(f".{begin}.o")
        parts.append(write_data_object(dict(inside[begin : begin + MOST]), part, like))
    merge_objects(parts, output, context)
    for part in parts:
        part.unlink()
    return output


def merge_objects(objects: Sequence[Path], output: Path, context: BuildContext) -> Path:
    """Merge objects into one relocatable object (``ld -r``), as a static library wants it.

    Parameters
    ----------
    objects : sequence of Path
        What is merged.
    output : Path
        The object to write.
    context : BuildContext
        Has the compiler, which calls the linker.

    Returns
    -------
    Path
        ``output``.
    """
    run_tool([context.cxx, "-r", "-nostdlib", "-o", str(output), *map(str, objects)])
    return output


def static_library(
    source: str,
    symbols: Sequence[str],
    context: BuildContext,
    *,
    suffix: str = ".cc",
    constants: Mapping[str, np.ndarray] | None = None,
    flags: Sequence[str] = (),
    objects: Sequence[Path] = (),
) -> tvm.runtime.Module:
    """Compile generated C or C++ into a static library that the final link takes: a whole codegen.

    Parameters
    ----------
    source : str
        Source text that defines one ``COLLAGE_EXPORT(<symbol>)`` per symbol; it may include
        ``collage_ffi.h``. OpenMP is on.
    symbols : sequence of str
        Global symbols of the partitions that the source defines.
    context : BuildContext
        Names the compiler, and the folder to work in.
    suffix : str
        Language of the source: ``.c``, ``.cc`` or ``.cpp``.
    constants : mapping of str to ndarray, optional
        Data that the source declares as ``extern const``, by :func:`constant_symbol`.
    flags : sequence of str
        More compiler flags.
    objects : sequence of Path
        More objects to take in, for example a runtime from :func:`cached_compilation`.

    Returns
    -------
    tvm.runtime.Module
        In memory: nothing of it is left on disk. Its constants are a module that it imports.

    Raises
    ------
    CompileError
        When the compiler or linker fails; carries its standard error.

    Examples
    --------
    >>> source = 'int answer(void) { return 42; }'
    >>> context = BuildContext(Path("cache"), Path("scratch"))
    >>> library = static_library(source, ["answer"], context, suffix=".c")
    >>> library.kind
    'static_library'
    """
    context.work_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=context.work_dir) as folder:
        text = Path(folder, f"kernels{suffix}")
        text.write_text(source, encoding="utf-8")
        flags = ["-fopenmp", *ffi_include_flags(), *flags]
        if context.weights_dir is not None:
            flags += reference_flags()
        parts = [
            compile_object(text, text.with_suffix(".o"), context, flags),
            num_threads_object(context),
            *objects,
        ]
        merged = merge_objects(parts, Path(folder, "library.o"), context)
        # Loading copies the file's bytes, so the folder need not outlive this call.
        library = tvm.runtime.load_static_library(str(merged), list(symbols))
        if constants:
            # Not merged: that would write all weights once more.
            data = constant_object(constants, Path(folder, "constants.o"), context)
            library.import_module(tvm.runtime.load_static_library(str(data), []))
        return library
