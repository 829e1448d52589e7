"""Weights with rows that wide loads cannot take are stored by columns, for the backends that ask.

A GPU moves 16 bytes per access, and in bulk, only where every row begins at a multiple of 16 bytes.
A vocabulary of 50257 words makes the rows of a language model's last weights, (768, 50257), begin
anywhere, and everything that reads them goes element by element. Their columns are fine: 768 long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import ir, relax

_ACCESS_BYTES = 16
"""The widest access of a thread; also what Hopper's bulk copies ask of every stride."""


def align_weights(function: relax.Function) -> relax.Function:
    """Store constant right operands of products transposed where that aligns them.

    Parameters
    ----------
    function : relax.Function
        A partition function, which holds ``Composite`` functions.

    Returns
    -------
    relax.Function
        ``matmul(x, w)`` in a composite, with a constant ``w`` of shape (K, N) where K elements are
        a multiple of 16 bytes and N are not, is ``matmul(x, permute_dims(c))`` with the constant
        ``c`` of shape (N, K). The code generators take the permutation for a layout: nothing is
        moved at run time. ``function`` itself where there is no such product; otherwise to be
        normalized.

    Examples
    --------
    >>> from collage.testing import constant, graph
    >>> main = graph([(1, 8)], lambda emit, x: relax.op.matmul(x, constant(8, 3)))["main"]
    >>> aligned = align_weights(main)
    >>> aligned.body.blocks[0].bindings[0].value.args[1].op.name
    'relax.permute_dims'
    """
    changed = False
    blocks = []
    for block in function.body.blocks:
        bindings = []
        for binding in block.bindings:
            value = _aligned(binding.value)
            changed = changed or value is not None
            bindings.append(binding if value is None else relax.VarBinding(binding.var, value))
        blocks.append(type(block)(bindings))
    if not changed:
        return function
    body = relax.SeqExpr(blocks, function.body.body)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


def _aligned(value: relax.Expr) -> relax.Expr | None:
    """A binding's value over aligned weights, or None where it can stay."""
    if isinstance(value, relax.Function):
        inner = align_weights(value)
        return None if inner is value else inner
    if not isinstance(value, relax.Call) or value.op != ir.Op.get("relax.matmul"):
        return None
    x, weights = value.args
    if not isinstance(weights, ir.GenericConst) or not _only_columns_are_aligned(weights):
        return None
    array: NDArray[Any] = weights.value.numpy()
    turned = relax.const(np.ascontiguousarray(array.T), str(weights.value.dtype))
    right = relax.op.permute_dims(turned, [1, 0])
    return relax.Call(value.op, [x, right], value.attrs, value.ty_args, value.span)


def _only_columns_are_aligned(weights: ir.GenericConst) -> bool:
    shape = [int(extent) for extent in weights.value.shape]
    if len(shape) != 2 or 0 in shape:
        return False
    rows, columns = (extent * np.dtype(str(weights.value.dtype)).itemsize for extent in shape)
    return columns % _ACCESS_BYTES != 0 and rows % _ACCESS_BYTES == 0
