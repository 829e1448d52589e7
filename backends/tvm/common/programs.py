"""Tensor programs that are written loop by loop, and called from Relax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

Write = Callable[[Sequence[Any], Sequence[Any]], None]
"""Writes the loops, given operands and results, whose elements are numbered in one row."""


def call_program(
    builder: relax.BlockBuilder,
    name: str,
    operands: Sequence[relax.Expr],
    wanted: Sequence[tuple[Sequence[int], str]],
    write: Write,
) -> relax.Expr:
    """A call of a program of its own loops.

    Parameters
    ----------
    builder : relax.BlockBuilder
        Takes the program.
    name : str
        Of the program.
    operands : sequence of relax.Expr
        Tensors of known shapes.
    wanted : sequence of (sequence of int, str)
        Shapes and dtypes of results.
    write : callable
        Called once.

    Returns
    -------
    relax.Expr
        A tensor, or a tuple of several.
    """

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> tirx.Stmt:
        with IRBuilder() as ib:
            with T.seq_scope():
                write([T.buffer_proxy(x) for x in ins], [T.buffer_proxy(x) for x in outs])
            return ib.get()

    def program(*tensors: te.Tensor) -> Any:
        return te.extern(
            [tuple(shape) for shape, _ in wanted],
            list(tensors),
            body,
            name=name,
            dtype=[kind for _, kind in wanted],
            in_buffers=[
                tirx.decl_buffer(t.shape, t.dtype, f"data{i}", layout=None)
                for i, t in enumerate(tensors)
            ],
            out_buffers=[
                tirx.decl_buffer(tuple(shape), kind, f"made{i}", layout=None)
                for i, (shape, kind) in enumerate(wanted)
            ],
        )

    return builder.call_te(program, *operands, primfunc_name_hint=name)
