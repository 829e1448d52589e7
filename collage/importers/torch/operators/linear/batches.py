"""Tensor programs over batches of matrices, in double precision: what surrounds their loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.relax import op
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.independent import each
from collage.importers.torch.operators.arguments import Importer, dtype_of, shape_of

WIDE = "float64"
Write = Callable[[Sequence[Any], Sequence[Any], Any], None]
"""What writes the loops: operands, results and the number of the matrix."""


def computed(
    importer: Importer,
    name: str,
    given: Sequence[relax.Expr],
    wanted: Sequence[tuple[Sequence[int], str]],
    write: Write,
) -> list[relax.Expr]:
    """What a program makes of a batch of matrices.

    Parameters
    ----------
    importer : Importer
        Binds expressions.
    name : str
        The program's.
    given : sequence of relax.Expr
        All with one batch axis in front; those of floating point are given in double precision.
    wanted : sequence of (sequence of int, str)
        Shapes and dtypes of results, with that axis.
    write : callable
        The loops for one matrix.

    Returns
    -------
    list of relax.Expr
        One a result.
    """
    operands = [
        importer.emit(op.astype(x, WIDE)) if "float" in dtype_of(x) and dtype_of(x) != WIDE else x
        for x in given
    ]

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        with IRBuilder() as made, each(int(outs[0].shape[0])) as number, T.seq_scope():
            write([T.buffer_proxy(x) for x in ins], [T.buffer_proxy(x) for x in outs], number)
        return made.get()

    def program(*tensors: te.Tensor) -> Any:
        return te.extern(
            [tuple(shape) for shape, _ in wanted],
            list(tensors),
            body,
            name=name,
            dtype=[dtype for _, dtype in wanted],
        )

    found = importer.block_builder.emit_te(program, *operands, primfunc_name_hint=name)
    if len(wanted) == 1:
        return [found]
    return [importer.emit(relax.TupleGetItem(found, i)) for i in range(len(wanted))]


def flat(importer: Importer, x: relax.Expr, kept: int) -> relax.Expr:
    """A tensor with all axes but the last ones joined into one.

    Parameters
    ----------
    importer : Importer
        Binds expressions.
    x : relax.Expr
        Any tensor with elements.
    kept : int
        How many axes of its own a matrix has.

    Returns
    -------
    relax.Expr
        Of one axis more than ``kept``.
    """
    shape = shape_of(x)
    return importer.emit(op.reshape(x, [-1, *shape[len(shape) - kept :]]))


def real(value: float) -> Any:
    """A constant in double precision.

    Returns
    -------
    tirx.Expr
        The constant.
    """
    return tirx.const(value, WIDE)


def cell(dtype: str = WIDE) -> Any:
    """Room for one value, in a buffer of one element.

    Returns
    -------
    buffer
        To be read and written.
    """
    return T.buffer_proxy(T.alloc_buffer((1,), dtype, scope="local"))


def copied(source: Any, target: Any, b: Any, rows: int, columns: int) -> None:
    """Write one matrix into another buffer.

    Parameters
    ----------
    source, target : buffer
        Of a batch.
    b : tirx.Var
        The number of the matrix.
    rows, columns : int
        Of the matrix.
    """
    with T.serial(0, rows) as i, T.serial(0, columns) as j:
        target[b, i, j] = source[b, i, j]


def unit_matrix(target: Any, b: Any, rows: int, columns: int) -> None:
    """Write ones on the diagonal, and zeros beside it.

    Parameters
    ----------
    target, b, rows, columns
        As :func:`copied` takes them.
    """
    with T.serial(0, rows) as i, T.serial(0, columns) as j:
        target[b, i, j] = tirx.Select(i == j, real(1), real(0))
