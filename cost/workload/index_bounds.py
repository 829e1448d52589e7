"""Which inputs of a module are indices, and into how many elements."""

from __future__ import annotations

import tvm
from tvm import ir, relax

from collage.backends.relax.static_shape import static_shape

KEEPS_VALUES = {
    "relax.astype",
    "relax.reshape",
    "relax.expand_dims",
    "relax.squeeze",
    "relax.flatten",
    "relax.permute_dims",
}
"""Operators that give the values of their first operand."""
_TAKES_INDICES = {"relax.take", "relax.gather_elements"}


def index_bounds(mod: tvm.IRModule) -> tuple[int | None, ...]:
    """For each parameter of ``main``, the size of the axis it selects from; None for data.

    Random integers would read out of bounds, so they are drawn below the smallest such size.
    """
    return _Bounds(mod).of(mod["main"])


class _Bounds:
    def __init__(self, mod: tvm.IRModule) -> None:
        self._mod = mod
        self._functions: dict[relax.Var, relax.Function] = {}

    def of(self, func: relax.Function) -> tuple[int | None, ...]:
        source: dict[relax.Var, relax.Var] = {param: param for param in func.params}
        bounds: dict[relax.Var, int] = {}

        def limit(arg: relax.Expr, bound: int | None) -> None:
            root = source.get(arg) if isinstance(arg, ir.Var) else None
            if root is not None and bound is not None:
                bounds[root] = min(bound, bounds.get(root, bound))

        for block in func.body.blocks:
            for binding in block.bindings:
                value = binding.value
                if isinstance(value, relax.Function):
                    self._functions[binding.var] = value
                elif isinstance(value, ir.Var) and value in source:
                    source[binding.var] = source[value]
                elif isinstance(value, ir.Call):
                    name = str(value.op.name) if isinstance(value.op, ir.Op) else ""
                    if name in KEEPS_VALUES and isinstance(value.args[0], ir.Var):
                        root = source.get(value.args[0])
                        if root is not None:
                            source[binding.var] = root
                    elif name in _TAKES_INDICES:
                        limit(value.args[1], axis_size(value))
                    elif not name:
                        callee = self._callee(value.op)
                        if callee is not None:
                            for arg, bound in zip(value.args, self.of(callee), strict=True):
                                limit(arg, bound)
        return tuple(bounds.get(param) for param in func.params)

    def _callee(self, op: relax.Expr) -> relax.Function | None:
        if isinstance(op, ir.Var):
            return self._functions.get(op)
        if isinstance(op, ir.GlobalVar) and isinstance(self._mod[op], relax.Function):
            return self._mod[op]
        return None


def axis_size(call: ir.Call) -> int:
    """How many elements there are to take along the axis that a call takes them from."""
    shape = static_shape(call.args[0])
    if call.attrs.axis is None:
        size = 1
        for extent in shape:
            size *= extent
        return size
    return shape[int(call.attrs.axis)]
