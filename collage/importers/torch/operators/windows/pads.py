"""Pads of exported programs, kept whole: taken apart they would be gathers by computed places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.importers.torch.operators.arguments import Importer, arguments, shape_of

_MODES = {
    **{f"reflection_pad{rank}d.default": "reflect" for rank in (1, 2, 3)},
    **{f"replication_pad{rank}d.default": "replicate" for rank in (1, 2, 3)},
}


def keep_pads(table: dict[Any, Any]) -> None:
    """Let a decomposition table leave pads alone, but for those with a constant."""
    for name in _MODES:
        operator, overload = name.split(".")
        table.pop(getattr(getattr(torch.ops.aten, operator), overload), None)
    table[torch.ops.aten.pad.default] = _constants


def _constants(x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    if mode != "constant":
        return NotImplemented
    return torch.ops.aten.constant_pad_nd(x, pad, 0 if value is None else value)


def _pad(importer: Importer, node: fx.Node) -> relax.Expr:
    """Widths below zero cut off, of what the others have made; the innermost axis comes first."""
    x, widths, mode, value, padding = arguments(
        importer, node, "self", "pad", "mode", "value", "padding"
    )
    widths = list(widths if widths is not None else padding)
    mode = _MODES.get(node.target.__name__, mode or "constant")
    rank = len(shape_of(x))
    pairs = [(0, 0)] * (rank - len(widths) // 2)
    pairs += [(widths[i], widths[i + 1]) for i in range(len(widths) - 2, -1, -2)]
    grown = [max(0, width) for pair in pairs for width in pair]
    if mode == "circular":
        # Of what is left when the others have been cut off.
        x = _cut(importer, x, pairs)
    if any(grown):
        x = importer.emit(op.nn.pad(x, grown, mode, value or 0))
    return x if mode == "circular" else _cut(importer, x, pairs)


def _cut(importer: Importer, x: relax.Expr, pairs: Sequence[tuple[int, int]]) -> relax.Expr:
    cut = [axis for axis, pair in enumerate(pairs) if min(pair) < 0]
    if not cut:
        return x
    begins = [max(0, -pairs[axis][0]) for axis in cut]
    ends = [shape_of(x)[axis] - max(0, -pairs[axis][1]) for axis in cut]
    return importer.emit(op.strided_slice(x, cut, begins, ends))


PADS: dict[str, Callable[[Importer, fx.Node], Any]] = dict.fromkeys(
    ("pad.default", "constant_pad_nd.default", *_MODES), _pad
)
