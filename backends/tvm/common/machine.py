"""What a schedule must know of the processor that a kernel is made for."""

from __future__ import annotations

import os
from dataclasses import dataclass

import tvm
from tvm.target import codegen


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
        """Ask LLVM about the target; ``num_threads`` 0 stands for every core of this process.

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
        vector_bytes = int(codegen.llvm_get_vector_width(target)) // 8
        wide_file = vector_bytes >= 64 or "aarch64" in _triple(target)
        return cls(max(vector_bytes, 16), 32 if wide_file else 16, threads)

    def lanes(self, dtype: str) -> int:
        """Elements of ``dtype`` in a vector register."""
        return max(1, self.vector_bytes * 8 // _bits(dtype))


def _triple(target: tvm.target.Target) -> str:
    triple = target.attrs.get("mtriple", None)
    return str(triple) if triple else str(codegen.llvm_get_system_triple())


def _bits(dtype: str) -> int:
    return max(8, int(tvm.DataType(dtype).bits))
