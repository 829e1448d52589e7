"""Inverses of square matrices, by elimination with pivots in double precision."""

from __future__ import annotations

import math

from tvm import relax, te, tirx
from tvm.relax import op
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.independent import each
from collage.importers.onnx.operators.node import Node, Refused

_WIDE = "float64"


def _inverse(node: Node) -> relax.Expr:
    *lead, size, columns = node.shape(0)
    if size != columns:
        raise Refused(f"a matrix of {size} x {columns}")
    emit, kind = node.emit, node.dtype(0)
    flat = [math.prod(lead), size, size]
    x = emit(op.astype(emit(op.reshape(node.operand(0), flat)), _WIDE))

    def inverse(x: te.Tensor) -> te.Tensor:
        return te.extern(
            (flat[0], size, 2 * size),
            [x],
            lambda ins, outs: _eliminated(ins[0], outs[0], size),
            dtype=_WIDE,
            name="inverse",
        )

    both = node.builder.emit_te(inverse, x, primfunc_name_hint="inverse")
    found = emit(op.strided_slice(both, [2], [size], [2 * size]))
    return emit(op.reshape(emit(op.astype(found, kind)), [*lead, size, size]))


def _eliminated(given: tirx.Buffer, result: tirx.Buffer, size: int) -> tirx.Stmt:
    """The program: each matrix beside ones, until the ones stand where it stood."""
    with IRBuilder() as program, T.seq_scope():
        x, wide = T.buffer_proxy(given), T.buffer_proxy(result)
        best = T.buffer_proxy(T.alloc_buffer((1,), "int64", scope="local"))
        kept = T.buffer_proxy(T.alloc_buffer((1,), _WIDE, scope="local"))
        with each(int(given.shape[0])) as b, T.seq_scope():
            with T.serial(0, size) as i, T.serial(0, size) as j, T.seq_scope():
                wide[b, i, j] = x[b, i, j]
                one, zero = tirx.const(1, _WIDE), tirx.const(0, _WIDE)
                wide[b, i, j + size] = tirx.Select(i == j, one, zero)
            with T.serial(0, size) as k, T.seq_scope():
                best[0] = tirx.Cast("int64", k)
                with T.serial(0, size) as i:
                    larger = tirx.abs(wide[b, i, k]) > tirx.abs(wide[b, best[0], k])
                    with T.If(tirx.all(i > k, larger)), T.Then():
                        best[0] = tirx.Cast("int64", i)
                with T.serial(0, 2 * size) as j, T.seq_scope():
                    kept[0] = wide[b, k, j]
                    wide[b, k, j] = wide[b, best[0], j]
                    wide[b, best[0], j] = kept[0]
                kept[0] = wide[b, k, k]
                with T.serial(0, 2 * size) as j:
                    wide[b, k, j] = wide[b, k, j] / kept[0]
                with T.serial(0, size) as i, T.If(i != k), T.Then(), T.seq_scope():
                    kept[0] = wide[b, i, k]
                    with T.serial(0, 2 * size) as j:
                        wide[b, i, j] = wide[b, i, j] - kept[0] * wide[b, k, j]
    return program.get()


MICROSOFT = {"Inverse": _inverse}
