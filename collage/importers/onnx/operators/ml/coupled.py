"""Probabilities of classes, coupled from those of pairs, as LIBSVM and onnxruntime find them.

Iterated until they change by little: how far is part of the answer, so the same steps are taken.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.independent import each
from collage.importers.onnx.operators.node import Node

_ROUNDS = 100
_CHANGE = 0.005
_DTYPE = "float32"


def coupled(node: Node, pairs: relax.Expr, classes: int) -> relax.Expr:
    """Probabilities of all classes: (rows, classes).

    Parameters
    ----------
    node : Node
        Whose builder emits.
    pairs : relax.Expr
        (rows, pairs): how likely the first of two classes is, in the order of ``combinations``.
    classes : int
        How many there are.

    Returns
    -------
    relax.Expr
        In float32.
    """

    def program(x: te.Tensor) -> te.Tensor:
        return te.extern(
            (x.shape[0], classes),
            [x],
            lambda ins, outs: _iterated(ins[0], outs[0], classes),
            dtype=_DTYPE,
            name="coupled",
        )

    return node.builder.emit_te(program, pairs, primfunc_name_hint="coupled")


def _iterated(given: tirx.Buffer, result: tirx.Buffer, classes: int) -> tirx.Stmt:
    """The program: rows one by one, each until its largest error is small."""
    with IRBuilder() as program, T.seq_scope():
        x, p = T.buffer_proxy(given), T.buffer_proxy(result)
        q = T.buffer_proxy(T.alloc_buffer((classes, classes), _DTYPE, scope="local"))
        qp = T.buffer_proxy(T.alloc_buffer((classes,), _DTYPE, scope="local"))
        at = T.buffer_proxy(T.alloc_buffer((4,), _DTYPE, scope="local"))
        with each(int(given.shape[0])) as b, T.seq_scope():
            _started(x, p, q, b, classes)
            at[1] = _real(1)
            with T.serial(0, _ROUNDS), T.If(at[1] > _real(0)), T.Then(), T.seq_scope():
                _measured(p, q, qp, at, b, classes)
                at[1] = tirx.Select(at[1] < _real(_CHANGE / classes), _real(0), at[1])
                with T.If(at[1] > _real(0)), T.Then(), T.serial(0, classes) as i, T.seq_scope():
                    _stepped(p, q, qp, at, b, i, classes)
    return program.get()


def _real(value: float) -> Any:
    return tirx.const(value, _DTYPE)


def _started(x: Any, p: Any, q: Any, b: Any, classes: int) -> None:
    """Equal probabilities, and the quadratic form that is to be least."""
    with T.serial(0, classes) as i, T.seq_scope():
        p[b, i] = _real(1 / classes)
        q[i, i] = _real(0)
    for pair, (i, j) in enumerate(combinations(range(classes), 2)):
        first, second = x[b, pair], _real(1) - x[b, pair]
        q[i, i] = q[i, i] + second * second
        q[j, j] = q[j, j] + first * first
        q[i, j] = -second * first
        q[j, i] = -second * first


def _measured(p: Any, q: Any, qp: Any, at: Any, b: Any, classes: int) -> None:
    """The form's gradient, its value in ``at[0]``, and the largest error in ``at[1]``."""
    at[0] = _real(0)
    at[1] = _real(0)
    with T.serial(0, classes) as i, T.seq_scope():
        qp[i] = _real(0)
        with T.serial(0, classes) as j:
            qp[i] = qp[i] + q[i, j] * p[b, j]
        at[0] = at[0] + p[b, i] * qp[i]
    with T.serial(0, classes) as i:
        at[1] = tirx.max(at[1], tirx.abs(qp[i] - at[0]))


def _stepped(p: Any, q: Any, qp: Any, at: Any, b: Any, i: Any, classes: int) -> None:
    """One class is moved, and all are scaled so that their sum is one."""
    at[2] = (at[0] - qp[i]) / q[i, i]
    at[3] = _real(1) + at[2]
    p[b, i] = p[b, i] + at[2]
    at[0] = (at[0] + at[2] * (at[2] * q[i, i] + _real(2) * qp[i])) / at[3] / at[3]
    with T.serial(0, classes) as j, T.seq_scope():
        qp[j] = (qp[j] + at[2] * q[i, j]) / at[3]
        p[b, j] = p[b, j] / at[3]
