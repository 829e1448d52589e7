"""Operators that only move elements become reshapes and permutations, which every backend knows."""

from __future__ import annotations

from tvm import relax

from collage.backends.relax.static_shape import static_shape
from collage.rewrite import Rules, Scope, reshape


def _pixel_shuffle(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Blocks of channels become blocks of pixels; TVM has the operator, but no program for it."""
    *outer, channels, height, width = static_shape(call.args[0])
    factor = int(call.attrs.upscale_factor)
    deep, first = channels // factor**2, len(outer)
    blocks = scope.emit(reshape(call.args[0], (*outer, deep, factor, factor, height, width)))
    order = [*range(first), first, first + 3, first + 1, first + 4, first + 2]
    moved = scope.emit(relax.op.permute_dims(blocks, order))
    return reshape(moved, (*outer, deep, height * factor, width * factor))


RULES: Rules = {"nn.pixel_shuffle": (_pixel_shuffle,)}
