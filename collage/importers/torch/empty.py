"""Nodes of exported programs whose operands or results hold no elements.

TVM's operators divide by their extents, and no constant without elements can be saved. What comes
out is known without any of them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree
from tvm import relax
from tvm.relax import op

from collage.importers.torch.nodes import as_array
from collage.importers.torch.operators.arguments import Importer, shape_of

_MOST_ELEMENTS = 1 << 20


def without_elements(importer: Importer, node: fx.Node) -> Any:
    """What stands for a node's result where there is nothing to compute; None where there is.

    Parameters
    ----------
    importer : Importer
        Binds expressions.
    node : fx.Node
        A call of an operator of PyTorch's.

    Returns
    -------
    object
        An expression; a list of them where the node has several results.
    """
    wanted = node.meta.get("val")
    results = wanted if isinstance(wanted, list | tuple) else [wanted]
    if not all(isinstance(one, torch.Tensor) and _is_plain(one) for one in results):
        return None
    operands = [one for one in node.all_input_nodes if _is_tensor(one)]
    if not all(_is_plain(one.meta["val"]) for one in operands):
        return None
    found: list[relax.Expr] | None
    if not any(one.numel() for one in results):
        sources = _not_folded(importer, node, operands)
        found = [_nothing(importer, sources, one) for one in results] if sources else None
    elif operands and not any(one.meta["val"].numel() for one in operands):
        found = _of_nothing(node, list(results))
    else:
        found = None
    if found is None:
        return None
    return found if isinstance(wanted, list | tuple) else found[0]


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _is_plain(value: torch.Tensor) -> bool:
    return not value.is_complex() and all(isinstance(extent, int) for extent in value.shape)


def _not_folded(importer: Importer, node: fx.Node, operands: list[fx.Node]) -> list[fx.Node]:
    """What a result without elements is made of: what is constant would be folded into one."""
    given = [one for one in operands if importer.depends_on_input(one)]
    return given or [
        one
        for one in node.graph.find_nodes(op="placeholder")
        if _is_tensor(one) and _is_plain(one.meta["val"]) and importer.depends_on_input(one)
    ]


def _nothing(importer: Importer, operands: list[fx.Node], wanted: torch.Tensor) -> relax.Expr:
    """No elements of an operand, in another shape."""
    emit = importer.emit
    none = [one for one in operands if not one.meta["val"].numel()]
    x = importer.value((none or operands)[0])
    extents = [int(extent) for extent in wanted.shape]
    kind = str(wanted.dtype).removeprefix("torch.")
    if shape_of(x) == extents:
        return emit(op.astype(x, kind))
    # One axis without elements, and not by a reshape: there 0 means the extent that was there.
    if none:
        given = shape_of(x)
        others = [axis for axis in range(len(given)) if axis != given.index(0)]
        x = emit(op.astype(x, "int32"))
        x = emit(op.sum(x, others)) if others else x
    else:
        x = emit(op.reshape(x, [math.prod(shape_of(x))]))
        x = emit(op.strided_slice(x, [0], [0], [0]))
    added = [axis for axis in range(len(extents)) if axis != extents.index(0)]
    x = emit(op.expand_dims(x, added)) if added else x
    x = emit(op.broadcast_to(x, relax.ShapeExpr(extents)))
    return emit(op.astype(x, kind))


def _of_nothing(node: fx.Node, results: list[torch.Tensor]) -> list[relax.Expr] | None:
    """PyTorch's own answer for operands without elements: the same in every call."""
    if sum(one.numel() for one in results) > _MOST_ELEMENTS:
        return None

    def given(value: Any) -> Any:
        if not isinstance(value, fx.Node):
            return value
        like = value.meta["val"]
        return torch.empty(like.shape, dtype=like.dtype) if _is_tensor(value) else like

    args, kwargs = pytree.tree_map(given, (node.args, node.kwargs))
    found = node.target(*args, **kwargs)
    answers = found if isinstance(found, list | tuple) else [found]
    # With its type: left alone, whole numbers become shorter ones.
    return [relax.const(as_array(one), str(one.dtype).removeprefix("torch.")) for one in answers]
