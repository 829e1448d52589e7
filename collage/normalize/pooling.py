"""Pools: pads become attributes, pools over whole planes become ``mean``."""

from __future__ import annotations

from tvm import relax

from collage.backends.relax.static_shape import static_shape
from collage.normalize.convolutions import spatial_padding
from collage.rewrite import Rules, Scope, is_tensor, op_name, with_attrs

_LOWEST = float("-inf")
_LOWEST_FLOAT32 = -3.4028234663852886e38


def _global_average(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """An average pool whose window is the whole plane is ``mean`` over the spatial axes."""
    x = call.args[0]
    attrs = call.attrs
    if not is_tensor(x) or str(attrs.layout) not in ("NCW", "NCHW", "NCDHW"):
        return None
    plane = list(static_shape(x)[2:])
    window = [int(v) for v in attrs.pool_size]
    dilated = any(int(v) != 1 for v in attrs.dilation)
    if window != plane or dilated or any(int(p) for p in attrs.padding):
        return None
    return _plane_mean(x)


def _adaptive_to_mean(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``adaptive_avg_pool`` to one place is ``mean``; to the size it has, nothing."""
    x = call.args[0]
    if not is_tensor(x) or not is_tensor(call):
        return None
    if str(call.attrs.layout) not in ("NCW", "NCHW", "NCDHW"):
        return None
    if static_shape(call) == static_shape(x):
        return x
    return _plane_mean(x) if all(size == 1 for size in static_shape(call)[2:]) else None


def _plane_mean(x: relax.Expr) -> relax.Expr:
    return relax.op.mean(x, axis=list(range(2, len(static_shape(x)))), keepdims=True)


def _canonical_reduction(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Reduction axes are written out, sorted and non-negative."""
    if not is_tensor(call.args[0]):
        return None
    rank = len(static_shape(call.args[0]))
    axes = call.attrs.axis
    if axes is not None and len(axes) == 0:
        return None
    wanted = sorted(int(a) % rank for a in axes) if axes is not None else list(range(rank))
    if rank == 0 or (axes is not None and [int(a) for a in axes] == wanted):
        return None
    return with_attrs(call, axis=wanted)


def _pad_into_pool(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """A pad before a pool becomes the pool's padding where both mean the same.

    For a maximum that is a pad with the lowest number; for an average, zeros that count.
    """
    attrs = call.attrs
    is_max = op_name(call).startswith("nn.max")
    own = [int(p) for p in attrs.padding]
    if bool(attrs.ceil_mode) or not str(attrs.layout).startswith("NC"):
        return None
    if not is_max and any(own) and not bool(attrs.count_include_pad):
        return None
    fills = (_LOWEST, _LOWEST_FLOAT32) if is_max else (0.0,)
    for fill in fills:
        found = spatial_padding(scope, call.args[0], fill)
        if found is None:
            continue
        padding = [a + b for a, b in zip(own, found[1], strict=True)]
        window = [int(v) for v in attrs.pool_size]
        if is_max and any(p >= w for p, w in zip(padding, window * 2, strict=True)):
            return None
        counted = not is_max or bool(attrs.count_include_pad)
        return with_attrs(call, found[0], padding=padding, count_include_pad=counted)
    return None


RULES: Rules = {
    **{f"nn.avg_pool{n}d": (_global_average, _pad_into_pool) for n in (1, 2, 3)},
    **{f"nn.max_pool{n}d": (_pad_into_pool,) for n in (1, 2, 3)},
    **{f"nn.adaptive_avg_pool{n}d": (_adaptive_to_mean,) for n in (1, 2, 3)},
    **dict.fromkeys(("sum", "mean", "max", "min", "variance"), (_canonical_reduction,)),
}
