"""From a source of many kernels to one fatbin, by several compilers at once and a cache.

The cache has each kernel's PTX. To machine code all of them go together, on several threads, and
come out as those of one compilation of the whole source do.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tvm

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import CompileError
from collage.backends.toolchain import compiling
from collage.backends.toolchain.artifact_cache import make_once, replacing
from collage.backends.toolchain.cuda_toolkit import arch_flags, find_toolkit
from collage.backends.toolchain.kernels.source import (
    Kernel,
    Source,
    entries,
    merged,
    with_infinities,
)

_TOGETHER = 6
"""Kernels that one compiler is begun for: what it takes to read CUDA's headers is as much as what
five of them take (0.76 s beside 0.16 for each, of processor time)."""


def compile_kernels(code: str, context: BuildContext, arch: str) -> bytes:
    """Compile TVM's generated CUDA source to a fatbin with machine code of one architecture.

    Parameters
    ----------
    code : str
        CUDA C++.
    context : BuildContext
        Compiler and cache folder.
    arch : str
        For example ``sm_90a``.

    Returns
    -------
    bytes
        The fatbin. Kernels that were compiled before come from the cache, whatever else was in
        their source.

    Raises
    ------
    CompileError
        When nvcc fails; carries its messages.
    """
    code = with_infinities(code)
    nvcc = _Nvcc(context, arch)
    output = context.cache_dir / "fatbins" / f"{nvcc.key(code)}.fatbin"

    def make(path: Path) -> None:
        source = Source.of(code)
        if source is None or not _together(nvcc, source, path):
            nvcc.whole(code, path)

    make_once(output, make)
    return output.read_bytes()


def _together(nvcc: _Nvcc, source: Source, output: Path) -> bool:
    """Compile what the cache lacks, and all of it on; whether the source can be taken apart."""
    known = {kernel: nvcc.ptx_of(kernel) for kernel in source.kernels}
    missing = [kernel for kernel, path in known.items() if not path.exists()]
    cores = len(os.sched_getaffinity(0))
    count = max(1, min(cores, len(missing) // _TOGETHER))
    # Neighbours are of a kind, and take as long as each other.
    parts = [missing[n::count] for n in range(count)]
    with ThreadPoolExecutor(count) as pool:
        if not all(pool.map(lambda part: nvcc.front(source, part), parts)):
            return False
    ptx = merged([path.read_text(encoding="utf-8") for path in known.values()])
    if ptx is None:
        return False
    try:
        nvcc.back(ptx, cores, output)
    except CompileError:
        # What two of them define is a matter of how the source was taken apart.
        return False
    return True


_FORM = "2"
"""Of what the cache keeps of a kernel. The first could end at assembly that is written inline."""


class _Nvcc:
    """The compiler, for one architecture and one cache folder."""

    def __init__(self, context: BuildContext, arch: str) -> None:
        toolkit = find_toolkit()
        self._folder = context.cache_dir / "kernels"
        self._base = (str(toolkit.nvcc), "-O3", *arch_flags(arch))
        self._language = (
            *("-std=c++17", "-ccbin", context.cxx, f"-I{toolkit.include}"),
            "--expt-relaxed-constexpr",
            "-U__CUDA_NO_HALF_OPERATORS__",
            "-U__CUDA_NO_HALF_CONVERSIONS__",
            "-U__CUDA_NO_BFLOAT16_OPERATORS__",
            "-U__CUDA_NO_BFLOAT16_CONVERSIONS__",
            "-U__CUDA_NO_BFLOAT162_OPERATORS__",
            "-U__CUDA_NO_BFLOAT162_CONVERSIONS__",
        )
        self._versions = (toolkit.version, arch)

    def key(self, *texts: str) -> str:
        """What names the result of compiling some texts."""
        return hashlib.sha256("\0".join([*texts, *self._versions]).encode()).hexdigest()

    def ptx_of(self, kernel: Kernel) -> Path:
        """Where a kernel's PTX lies, once it is there.

        A source has those helpers of TVM's that its kernels need, so they differ where kernels are
        the same; what each of them does depends on TVM's release alone.
        """
        return self._folder / f"{self.key(kernel.code, str(tvm.__version__), _FORM)}.ptx"

    def whole(self, code: str, output: Path) -> None:
        """Compile a source as it is."""
        with tempfile.TemporaryDirectory() as name:
            text = Path(name, "kernels.cu")
            text.write_text(code, encoding="utf-8")
            self._run("--fatbin", *self._language, "-o", str(output), str(text))

    def front(self, source: Source, kernels: Sequence[Kernel]) -> bool:
        """Compile some kernels to PTX with one compiler; whether it made them all."""
        if not kernels:
            return True
        with tempfile.TemporaryDirectory() as name:
            text, ptx = Path(name, "kernels.cu"), Path(name, "kernels.ptx")
            text.write_text(source.with_kernels(kernels), encoding="utf-8")
            self._run("--ptx", *self._language, "-o", str(ptx), str(text))
            found = entries(ptx.read_text(encoding="utf-8"))
        if not found.keys() >= {kernel.name for kernel in kernels}:
            return False
        for kernel in kernels:
            # Not made once: who makes the same one at this moment has others to make as well.
            with replacing(self.ptx_of(kernel)) as partial:
                partial.write_text(found[kernel.name], encoding="utf-8")
        return True

    def back(self, ptx: str, threads: int, output: Path) -> None:
        """A fatbin of a PTX module.

        Kernels that are compiled one by one down to machine code have to be relocatable to be
        linked, and divide by functions of their own then, with other registers.
        """
        with tempfile.TemporaryDirectory() as name:
            text = Path(name, "kernels.ptx")
            text.write_text(ptx, encoding="utf-8")
            self._run("--fatbin", f"--split-compile={threads}", "-o", str(output), str(text))

    def _run(self, *arguments: str) -> None:
        compiling.run_tool([*self._base, *arguments])
