"""Native building blocks shared by the backends: compile, pool constants, merge objects, link.

Everything goes through the C++ compiler driver, the only tool besides Python that a user must have.
Objects are cached by content: sources, flags and compiler version name the file.
"""

from __future__ import annotations

import functools
import hashlib
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm
import tvm_ffi

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import CompileError
from collage.backends.toolchain.artifact_cache import make_once

TEMPLATES = Path(__file__).resolve().parent / "templates"
FFI_HEADER = TEMPLATES / "collage_ffi.h"
"""Tensors, errors and threads for entry points in C and C++; see the file's first lines."""

OWN_STATICS = "-fno-gnu-unique"
"""Without it, static variables of templates and inline functions are one in the whole process, and
a library takes another's word for what has been set up for its own kernels."""


def ffi_include_flags() -> list[str]:
    """``-I`` flags for ``collage_ffi.h``, ``tvm/ffi/c_api.h`` and ``dlpack/dlpack.h``."""
    return [
        f"-I{TEMPLATES}",
        f"-I{tvm_ffi.libinfo.find_include_path()}",
        f"-I{tvm_ffi.libinfo.find_dlpack_include_path()}",
    ]


@functools.cache
def compiler_version(cxx: str) -> str:
    """First line of ``<cxx> --version``; part of every measurement's key."""
    return run_tool([cxx, "--version"]).splitlines()[0]


def run_tool(command: Sequence[str], cwd: Path | None = None, *, both: bool = False) -> str:
    """Run a compiler or linker and return its standard output; ``both`` adds standard error.

    Parameters
    ----------
    command : sequence of str
        The program and its arguments.
    cwd : Path, optional
        Where it runs; in this process's folder by default.
    both : bool
        Return standard error behind standard output.

    Returns
    -------
    str
        All of it, as text.

    Raises
    ------
    CompileError
        When the tool is missing or fails; carries its standard error.
    """
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    except FileNotFoundError as err:
        raise CompileError(
            f"'{command[0]}' was not found: install a C++17 compiler (Debian: apt install g++)",
            value=command[0],
        ) from err
    if done.returncode != 0:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr)
        raise CompileError(
            f"{command[0]} failed with exit status {done.returncode}: {first.strip()}",
            value=done.stderr,
        )
    return done.stdout + done.stderr if both else done.stdout


@dataclass(frozen=True)
class Compilation:
    """One object of the cache folder, and how it is compiled.

    Attributes
    ----------
    output : Path
        Named by content.
    command : tuple of str
        The compiler's command line, but for ``-o`` and the output.

    Examples
    --------
    >>> context = BuildContext(Path("cache"), Path("scratch"))
    >>> source = Path("answer.c")
    >>> size = source.write_text("int answer(void) { return 42; }")
    >>> command = ("gcc", "-c", str(source))
    >>> made = Compilation.of(source, depends=(), key=command, command=command, context=context)
    >>> made.run().name
    'answer-...o'
    """

    output: Path
    command: tuple[str, ...]

    @classmethod
    def of(
        cls,
        source: Path,
        depends: Iterable[Path],
        key: Iterable[str],
        command: Iterable[str],
        context: BuildContext,
    ) -> Compilation:
        """The compilation of one source, its object named by all that counts.

        Parameters
        ----------
        source : Path
            The file.
        depends : iterable of Path
            Files that it includes and whose content counts.
        key : iterable of str
            Versions, flags and whatever else counts.
        command : iterable of str
            As the attribute.
        context : BuildContext
            Has the cache folder.

        Returns
        -------
        Compilation
            Not run yet; its output lies in the context's cache folder.
        """
        digest = hashlib.sha256()
        for path in (source, *depends):
            digest.update(path.read_bytes())
        digest.update("\0".join(key).encode())
        name = f"{source.stem}-{digest.hexdigest()[:20]}.o"
        return cls(context.cache_dir / "objects" / name, tuple(command))

    def run(self, tool: Callable[[Sequence[str]], object] = run_tool) -> Path:
        """Compile unless the object is there, or is being compiled elsewhere.

        Parameters
        ----------
        tool : callable
            Runs the compiler.

        Raises
        ------
        CompileError
            When the compiler is missing or fails; carries its messages.
        """
        return make_once(self.output, lambda path: tool([*self.command, "-o", str(path)]))


def cached_compilation(
    source: Path, context: BuildContext, flags: Sequence[str] = (), depends: Iterable[Path] = ()
) -> Compilation:
    """How one C or C++ file becomes a position-independent object, named by content.

    Parameters
    ----------
    source : Path
        The file; its suffix tells the language.
    context : BuildContext
        Names the compiler, and the cache folder where the object goes.
    flags : sequence of str
        Compiler flags besides ``-O3 -fPIC`` and :data:`OWN_STATICS`.
    depends : iterable of Path
        Files that the source includes and whose content therefore counts.

    Returns
    -------
    Compilation
        Not run yet.

    Examples
    --------
    >>> context = BuildContext(Path("cache"), Path("scratch"))
    >>> source = Path("answer.c")
    >>> size = source.write_text("int answer(void) { return 42; }")
    >>> cached_compilation(source, context, ["-Wall"]).run().parent
    PosixPath('cache/objects')
    """
    key = [OWN_STATICS, *flags, compiler_version(context.cxx), source.suffix]
    return Compilation.of(source, depends, key, _compile_command(source, context, flags), context)


def compile_object(
    source: Path, output: Path, context: BuildContext, flags: Sequence[str] = ()
) -> Path:
    """Compile one C, C++ or assembler file, not cached.

    Parameters
    ----------
    source : Path
        Its suffix tells the language.
    output : Path
        The object to write.
    context : BuildContext
        Has the compiler.
    flags : sequence of str
        Besides those of :func:`cached_compilation`.

    Returns
    -------
    Path
        ``output``.
    """
    run_tool([*_compile_command(source, context, flags), "-o", str(output)])
    return output


def _compile_command(source: Path, context: BuildContext, flags: Sequence[str]) -> tuple[str, ...]:
    language = ["-x", "c"] if source.suffix == ".c" else []
    language = language or (["-std=c++17"] if source.suffix in (".cc", ".cpp") else [])
    return (context.cxx, *language, "-O3", "-fPIC", OWN_STATICS, "-c", str(source), *flags)


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
    many objects bring it. The file is mapped, not read, when the library is loaded.

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
    lines = []
    for index, (symbol, array) in enumerate(constants.items()):
        data = output.with_name(f"{output.stem}.{index}.bin")
        np.ascontiguousarray(array).tofile(data)
        lines += [
            f'.section .rodata.{symbol},"aG",@progbits,{symbol},comdat',
            f".weak {symbol}",
            f".hidden {symbol}",
            ".balign 64",
            f'{symbol}: .incbin "{_assembler_text(data)}"',
            f".size {symbol}, {max(array.nbytes, 1)}",
        ]
        if array.nbytes == 0:
            lines.append(".byte 0")
    lines.append('.section .note.GNU-stack,"",@progbits')
    source = output.with_suffix(".s")
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    compile_object(source, output, context)
    for index in range(len(constants)):
        output.with_name(f"{output.stem}.{index}.bin").unlink()
    return output


def _assembler_text(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')


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
        In memory: nothing of it is left on disk.

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
        parts = [
            compile_object(
                text, text.with_suffix(".o"), context, ["-fopenmp", *ffi_include_flags(), *flags]
            ),
            num_threads_object(context),
            *objects,
        ]
        if constants:
            parts.append(constant_object(constants, Path(folder, "constants.o"), context))
        merged = merge_objects(parts, Path(folder, "library.o"), context)
        # Loading copies the file's bytes, so the folder need not outlive this call.
        return tvm.runtime.load_static_library(str(merged), list(symbols))
