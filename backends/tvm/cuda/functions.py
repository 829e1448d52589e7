"""Programs whose kernels are functions of CUDA's own language, from this folder's templates.

Scans, sorts and transforms of a block need shuffles, and memory that its threads share, at every
step: what loops of tensor programs do not say. A kernel here is one call of a function, with its
types and sizes as parameters of a template.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm import relax, tirx
from tvm.backend.cuda.op import cuda_func_call
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.launch import kernel
from collage.backends.tvm.common.programs import call_program

TEMPLATES = Path(__file__).resolve().parent / "templates"

Shape = Sequence[int]


@dataclass(frozen=True)
class Launch:
    """A kernel of a program.

    Attributes
    ----------
    blocks, threads : int
        How many, and of each.
    function : str
        In the templates, with the parameters of its template.
    operands : sequence of int
        Numbers of the tensors whose addresses it gets: the program's operands, then its results.
    sizes : sequence of int
        Given behind them; the number of the block comes last of all.
    numbers : sequence of float
        Given between those two.
    shared_bytes : int
        Of memory for a block, whose address comes first; none if 0.
    """

    blocks: int
    threads: int
    function: str
    operands: Sequence[int]
    sizes: Sequence[int]
    shared_bytes: int = 0
    numbers: Sequence[float] = ()


def call_kernels(
    builder: relax.BlockBuilder,
    name: str,
    operands: Sequence[relax.Expr],
    results: Sequence[tuple[Shape, str]],
    launches: Sequence[Launch],
) -> relax.Expr:
    """A call of a program of such kernels, one after the other.

    Parameters
    ----------
    builder : relax.BlockBuilder
        Takes the program.
    name : str
        Of the program.
    operands : sequence of relax.Expr
        Tensors of known shapes.
    results : sequence of (sequence of int, str)
        Shapes and dtypes; those that kernels leave for each other are among them.
    launches : sequence of Launch
        The kernels.

    Returns
    -------
    relax.Expr
        A tensor, or a tuple of several.
    """

    def write(ins: Sequence[Any], outs: Sequence[Any]) -> None:
        for launch in launches:
            _write(launch, [*ins, *outs])

    return call_program(builder, name, operands, results, write)


def _write(launch: Launch, tensors: Sequence[Any]) -> None:
    with kernel(launch.blocks, launch.threads) as (block, _):
        given: list[Any] = []
        if launch.shared_bytes:
            memory = T.alloc_buffer((launch.shared_bytes,), "uint8", scope="shared.dyn")
            # By itself: of the place of an element TVM sees that one byte is used, and leaves that.
            given.append(memory.data)
        given += [tirx.address_of(tensors[number][0]) for number in launch.operands]
        given += [tirx.const(size, "int64") for size in launch.sizes]
        given += [tirx.const(number, "float32") for number in launch.numbers]
        source = "".join((TEMPLATES / f"{each}.h").read_text("utf-8") for each in _TEMPLATES)
        call = cuda_func_call(launch.function, *given, block, source_code=source)
        T.evaluate(call)


_TEMPLATES = ("numbers", "scan", "search", "keys", "sort", "statistics", "fourier", "regions")
"""One text for all kernels of a module: TVM writes it once."""
