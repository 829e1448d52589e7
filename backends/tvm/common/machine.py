"""What a schedule must know of the processor that a kernel is made for."""

from __future__ import annotations

import os
from dataclasses import dataclass

import tvm
from tvm.target import codegen

_X86 = ("x86_64", "amd64", "i386", "i486", "i586", "i686")
_X86_VECTORS = (("avx512f", 64), ("avx", 32))


@dataclass(frozen=True)
class Machine:
    """What a schedule must know of the machine.

    Attributes
    ----------
    vector_bytes : int
        Width of a vector register.
    num_registers : int
        Vector registers that a kernel may name.
    num_threads : int
        Threads that parallel loops run with.

    Examples
    --------
    >>> Machine(vector_bytes=32, num_registers=16, num_threads=4).lanes("float32")
    8
    """

    vector_bytes: int
    num_registers: int
    num_threads: int

    @classmethod
    def of_target(cls, target: tvm.target.Target, num_threads: int) -> Machine:
        """Ask LLVM what the target has; ``num_threads`` 0 stands for every core of this process.

        Parameters
        ----------
        target : tvm.target.Target
            Of the processor.
        num_threads : int
            Of the kernels.

        Returns
        -------
        Machine
            Its vectors have 16 bytes at the least; 32 of them where they have 64 bytes, and on
            AArch64.
        """
        threads = num_threads or len(os.sched_getaffinity(0))
        vector_bytes = max(_vector_bytes(target), 16)
        wide_file = vector_bytes >= 64 or "aarch64" in _triple(target)
        return cls(vector_bytes, 32 if wide_file else 16, threads)

    def lanes(self, dtype: str) -> int:
        """Elements of ``dtype`` in a vector register."""
        return max(1, self.vector_bytes * 8 // _bits(dtype))


def _vector_bytes(target: tvm.target.Target) -> int:
    """By features on x86: of LLVM 22, TVM's own question hears 64 bytes for every such processor.

    Kernels for registers that are not there spill all of their accumulators.
    """
    if not _triple(target).startswith(_X86):
        return int(codegen.llvm_get_vector_width(target)) // 8
    found = (width for name, width in _X86_VECTORS if codegen.target_has_features(name, target))
    return next(found, 16)


def _triple(target: tvm.target.Target) -> str:
    triple = target.attrs.get("mtriple", None)
    return str(triple) if triple else str(codegen.llvm_get_system_triple())


def _bits(dtype: str) -> int:
    return max(8, int(tvm.DataType(dtype).bits))
