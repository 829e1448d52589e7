"""Norms, reductions over any axes, and products of few rows: small, at sizes even and odd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

Input = tuple[tuple[int, ...], str]
Body = Callable[[Any, Sequence[relax.Var]], relax.Expr]
op = relax.op


def graphs(dtype: str) -> dict[str, tuple[Sequence[Input], Body]]:
    """Inputs and body of each, as the cases of TVM's kernels want them.

    Parameters
    ----------
    dtype : str
        Of all inputs.
    """

    def tensor(*shape: int) -> Input:
        return shape, dtype

    return {
        "group_norm": ([tensor(2, 24, 8, 8)], _group_norm(4, 1, [2, 3], 24)),
        "group_norm_odd": ([tensor(2, 15, 7, 11)], _group_norm(5, 1, [2, 3], 15)),
        "group_norm_last": ([tensor(2, 9, 8, 24)], _group_norm(4, 3, [1, 2], 24)),
        # So few groups that each is summed in parts, by a kernel of its own.
        "group_norm_parts": ([tensor(1, 2, 31, 1087)], _group_norm(2, 1, [2, 3], 2)),
        "group_norm_offset": ([tensor(2, 8, 40)], _offset),
        "instance_norm": (
            [tensor(2, 6, 9, 13)],
            lambda g, x: g.emit(
                op.nn.instance_norm(x[0], g.weights(6, mean=1.0), g.weights(6), 1, [2, 3])
            ),
        ),
        "layer_norm_first": (
            [tensor(2, 24, 6, 10)],
            lambda g, x: g.emit(
                op.nn.layer_norm(x[0], g.weights(24, mean=1.0), g.weights(24), axes=[1])
            ),
        ),
        "softmax_middle": ([tensor(2, 30, 5, 7)], lambda g, x: g.emit(op.nn.softmax(x[0], 1))),
        "log_softmax_first": (
            [tensor(40, 33)],
            lambda g, x: g.emit(op.nn.log_softmax(x[0], 0)),
        ),
        "variance_middle": (
            [tensor(5, 40, 6)],
            lambda g, x: g.emit(op.variance(x[0], [1], keepdims=True)),
        ),
        "std_all": ([tensor(5, 40, 6)], lambda g, x: g.emit(op.std(x[0]))),
        "mean_columns": ([tensor(3000, 40)], lambda g, x: g.emit(op.mean(x[0], [0]))),
        "mean_ends": ([tensor(12, 5, 50)], lambda g, x: g.emit(op.mean(x[0], [0, 2]))),
        "max_columns": ([tensor(2000, 3)], lambda g, x: g.emit(op.max(x[0], [0]))),
        "argmax_rows": ([tensor(37, 1001)], lambda g, x: g.emit(op.argmax(x[0], 1))),
        "products_of_rows": (
            [tensor(6, 1, 64), tensor(6, 64, 50)],
            lambda g, x: g.emit(op.matmul(*x)),
        ),
        "dot": ([tensor(6400), tensor(6400)], lambda g, x: g.emit(op.matmul(*x))),
        # Rows of twelve loads share a warp.
        "layer_norm_short": (
            [tensor(40, 96)],
            lambda g, x: g.emit(
                op.nn.layer_norm(x[0], g.weights(96, mean=1.0), g.weights(96), axes=[-1])
            ),
        ),
        "excitation_first": (
            [tensor(1, 192, 1, 1)],
            lambda g, x: g.emit(op.sigmoid(g.emit(op.nn.conv2d(x[0], g.weights(24, 192, 1, 1))))),
        ),
        "excitation": ([tensor(3, 1, 1, 96)], _excitation),
    }


def _group_norm(groups: int, axis: int, spatial: list[int], width: int) -> Body:
    def body(g: Any, x: Sequence[relax.Var]) -> relax.Expr:
        gamma, beta = g.weights(width, mean=1.0), g.weights(width)
        return g.emit(
            op.nn.silu(g.emit(op.nn.group_norm(x[0], gamma, beta, groups, axis, spatial)))
        )

    return body


def _offset(g: Any, x: Sequence[relax.Var]) -> relax.Expr:
    """A mean a hundred times the deviation: its square would swallow the variance."""
    moved = g.emit(op.add(g.emit(op.multiply(x[0], relax.const(0.5, g.dtype))), _hundred(g)))
    return g.emit(op.nn.group_norm(moved, g.weights(8, mean=1.0), g.weights(8), 2, 1, [2]))


def _hundred(g: Any) -> relax.Expr:
    return relax.const(100.0 if g.dtype == "float32" else 8.0, g.dtype)


def _excitation(g: Any, x: Sequence[relax.Var]) -> relax.Expr:
    inner = g.emit(op.nn.relu(g.conv(x[0], 12, 96, 1)))
    return g.emit(op.sigmoid(g.conv(inner, 96, 12, 1)))
