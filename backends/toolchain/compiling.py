"""Compiles C and C++: the one compiler driver, and objects named by what they are made from.

The C++ compiler driver is the only tool besides Python that a user must have. Objects are cached by
content: sources, flags and compiler version name the file.
"""

from __future__ import annotations

import functools
import hashlib
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

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

    def run(
        self,
        tool: Callable[[Sequence[str]], object] = run_tool,
        given_up: Callable[[], bool] = lambda: False,
    ) -> Path:
        """Compile unless the object is there, or is being compiled elsewhere.

        Parameters
        ----------
        tool : callable
            Runs a command.
        given_up : callable, optional
            Whether it is no longer wanted of another process that compiles it.

        Returns
        -------
        Path
            The object.

        Raises
        ------
        CompileError
            When the compiler is missing or fails; carries its messages.
        OutOfTimeError
            When it was given up.
        """

        def make(path: Path) -> object:
            return tool([*self.command, "-o", str(path)])

        return make_once(self.output, make, given_up)


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
