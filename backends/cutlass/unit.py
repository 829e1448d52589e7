"""A kernel unit as it is compiled: named by its content, so that equal kernels are one."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

import psutil

from collage.backends.contract import BuildContext
from collage.backends.cutlass.families import KernelSource
from collage.backends.cutlass.library import TEMPLATES, include_flags, template_headers
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.toolchain.cuda_toolkit import cached_cuda_compilation


@dataclass(frozen=True)
class Unit:
    """One kernel's source file.

    Attributes
    ----------
    symbol : str
        The C function that launches the kernel; named by the digest of the text and of this
        backend's headers that it includes.
    source : KernelSource
        As the family rendered it.
    """

    symbol: str
    source: KernelSource

    @classmethod
    def of(cls, source: KernelSource, options: CutlassOptions | None = None) -> Unit:
        """The unit of a rendered source.

        Parameters
        ----------
        source : KernelSource
            As the family rendered it.
        options : CutlassOptions, optional
            What its compiler flags follow from: two targets may want one kernel in two ways.

        Returns
        -------
        Unit
            Its symbol is a digest of the text, of the headers that it includes, and of the flags.
        """
        digest = hashlib.sha256(source.text.encode())
        digest.update("".join(_fast_math(options)).encode())
        for header in included_headers(source.text):
            digest.update(header.read_bytes())
        return cls(f"collage_cutlass_{digest.hexdigest()[:16]}", source)

    @property
    def file_name(self) -> str:
        """Names the kernel for whoever reads a compiler's messages or a folder of sources."""
        return f"{self.source.stem}-{self.symbol.rpartition('_')[2]}.cu"

    @property
    def text(self) -> str:
        """The file's content: the source after the names it is to define."""
        names = {"COLLAGE_KERNEL": "", "COLLAGE_KERNEL_WORKSPACE": "_workspace"}
        lines = [f"#define {macro} {self.symbol}{suffix}" for macro, suffix in names.items()]
        return "\n".join([*lines, self.source.text])

    def write(self, folder: Path) -> Path:
        """Put the file into a folder."""
        path = folder / self.file_name
        path.write_text(self.text, encoding="utf-8")
        return path

    def compile(
        self, folder: Path, options: CutlassOptions, context: BuildContext, arch: str
    ) -> Path:
        """The object with this kernel, compiled once per content; ``folder`` is for scratch.

        Parameters
        ----------
        folder : Path
            For scratch.
        options : CutlassOptions
            They give compiler flags.
        context : BuildContext
            Compiler and cache folder.
        arch : str
            What to compile for, for example ``sm_90a``.

        Returns
        -------
        Path
            The object, in the context's cache folder.

        Raises
        ------
        CompileError
            When nvcc refuses it.
        """
        flags = compile_flags(options)
        source, headers = self.write(folder), template_headers()
        return cached_cuda_compilation(source, context, arch, flags, headers).run()


def included_headers(text: str, folder: Path = TEMPLATES) -> list[Path]:
    """The headers in ``folder`` that a source includes, and those that these include; sorted.

    Parameters
    ----------
    text : str
        C++ source.
    folder : Path
        Where headers are looked for; others do not count.

    Returns
    -------
    list[Path]
        Paths in the folder; headers of CUTLASS and CUDA are no part of it.
    """
    found: set[Path] = set()
    texts = [text]
    while texts:
        for name in re.findall(r'^\s*#include "([^"]+)"', texts.pop(), re.MULTILINE):
            header = folder / name
            if header not in found and header.is_file():
                found.add(header)
                texts.append(header.read_text(encoding="utf-8"))
    return sorted(found)


def compile_flags(options: CutlassOptions) -> list[str]:
    """nvcc's flags for kernel units, besides the shared ones."""
    return [*include_flags(), f"-I{TEMPLATES}", *_fast_math(options)]


def _fast_math(options: CutlassOptions | None) -> list[str]:
    return ["--use_fast_math"] if options is not None and options.use_fast_math else []


_COMPILER_BYTES = 7 << 29
"""What nvcc takes for one of CUTLASS's kernels for Hopper: 3.3 GiB were seen."""


def compile_jobs(options: CutlassOptions) -> int:
    """How many kernels to compile at once: as many as asked for, else as cores and memory allow."""
    if not options.use_multiprocessing:
        return 1
    held = psutil.virtual_memory().available // _COMPILER_BYTES
    return options.threads or max(1, min(len(os.sched_getaffinity(0)), held))
