"""``flex_attention``: attention whose scores and mask are functions of places, in plain operators.

Where scores stay as they are it is ordinary attention with a mask, which libraries have.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.nn.attention.flex_attention import _vmap_for_bhqkv
from torch.utils import _pytree as pytree

from collage.importers.torch.courses.writer import Writer, aten
from collage.importers.torch.operators.errors import RefusedError

Tracing = Callable[[Callable[..., Any], Sequence[Any]], Sequence[Any]]
"""Writes what a function computes of these tensors, and gives its results."""


def attended(writer: Writer, traced: Tracing, node: fx.Node, args: Sequence[Any]) -> Sequence[Any]:
    """A call of ``flex_attention`` in plain operators.

    Parameters
    ----------
    writer : Writer
        Gets the nodes.
    traced : callable
        Writes functions.
    node : fx.Node
        The call.
    args : sequence
        Its arguments, bodies as modules.

    Returns
    -------
    sequence
        All three results.

    Raises
    ------
    RefusedError
        For a body that picks by anything but places.
    """
    query, key, value, score, block_mask, scale, _, read, masked_by = args
    changing, masking = (_picking(body) for body in (score, block_mask[-1]))
    (batch, heads, rows, _), columns = query.meta["val"].shape, key.meta["val"].shape[2]

    def places() -> list[Any]:
        return [torch.arange(extent) for extent in (batch, heads, rows, columns)]

    def mask(*others: Any) -> Any:
        return (_everywhere(masking, (), len(others))(*places(), *others),)

    def attention(q: Any, k: Any, v: Any, mask: Any, *others: Any) -> Any:
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        scores = (q.to(wide) @ k.to(wide).transpose(-2, -1)) * scale
        changed = _everywhere(changing, (0,), len(others))(scores, *places(), *others)
        changed = torch.where(mask, changed.to(wide), -math.inf)
        largest = changed.amax(-1)
        nothing = largest == -math.inf
        shares = torch.where(nothing[..., None], 0.0, torch.softmax(changed, -1))
        sums = torch.where(nothing, -math.inf, torch.logsumexp(changed, -1))
        return shares.to(q.dtype) @ v, sums / math.log(2), largest / math.log(2)

    def expanded(k: Any, v: Any) -> Any:
        return tuple(_expanded(one, batch, heads // one.shape[1]) for one in (k, v))

    key, value = traced(expanded, [key, value])
    (seen,) = traced(mask, masked_by)
    if not (_hands_on(changing) and _takes_first_only(node)):
        return traced(attention, [query, key, value, seen, *read])
    target = aten.scaled_dot_product_attention.default
    return [writer.emit(target, query, key, value, seen, scale=scale)] * 3


def _expanded(x: torch.Tensor, rows: int, shared: int) -> torch.Tensor:
    """Heads and sequences that several queries share, once for each."""
    if shared > 1:
        x = x[:, :, None].expand(-1, -1, shared, -1, -1).flatten(1, 2)
    return x if x.shape[0] == rows else x.expand(rows, -1, -1, -1)


def _everywhere(body: Any, prefix: tuple[int, ...], others: int) -> Callable[..., Any]:
    """A function of one place as one of all places."""
    found: Callable[..., Any] = _vmap_for_bhqkv(body, prefix=prefix, suffix=(None,) * others)
    return found


def _takes_first_only(node: fx.Node) -> bool:
    return all(user.args[1] == 0 or not user.users for user in node.users)


def _hands_on(body: fx.GraphModule) -> bool:
    """Whether a body gives the score that it was given."""
    first = next(iter(body.graph.nodes))
    (output,) = body.graph.find_nodes(op="output")
    return bool(pytree.tree_leaves(output.args) == [first])


def _picking(body: fx.GraphModule) -> fx.GraphModule:
    """A body in which ``tensor[places]`` is an operator: PyTorch keeps a function there."""
    found = copy.deepcopy(body)
    for node in list(found.graph.nodes):
        if getattr(node.target, "__name__", "") != "flat_apply":
            continue
        given = [one for one in node.args[2:] if not isinstance(one, type)]
        if not all(isinstance(one, fx.Node | int) for one in given):
            raise RefusedError("flex_attention: a function of scores picks by slices")
        with found.graph.inserting_before(node):
            places = [
                one if isinstance(one, fx.Node) else found.graph.call_function(torch.tensor, (one,))
                for one in given[1:]
            ]
            picked = found.graph.call_function(aten.index.Tensor, (given[0], places))
        node.replace_all_uses_with(picked)
        found.graph.erase_node(node)
    found.graph.eliminate_dead_code()
    found.recompile()
    return found
