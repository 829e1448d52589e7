"""Which inputs hold places in a tensor, and which places there are.

A token that the vocabulary lacks is an error in PyTorch and onnxruntime. A compiled kernel takes
the nearest one, so the bundle looks at such inputs before it calls.
"""

from __future__ import annotations

import tvm
from tvm import relax

from collage.bundle.signature import Places
from collage.cost.workload.index_bounds import KEEPS_VALUES, axis_size
from collage.rewrite import constant, flat_bindings, op_name


def places_of(mod: tvm.IRModule) -> tuple[Places, ...]:
    """The inputs of ``main`` that are taken by as they are, and what they may be.

    Indices that are clipped on purpose may be any, and so may what is computed with first; places
    that the model counts from the end where they are negative may be so.

    Parameters
    ----------
    mod : tvm.IRModule
        As it was imported: normalized, all indices are clipped.

    Returns
    -------
    tuple of Places
        In the order of the inputs.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.testing import graph
    >>> mod = graph([(9, 4), (3,)], lambda emit, x, i: op.take(x, i, 0), ["float32", "int64"])
    >>> places_of(mod)
    (Places(input=1, low=0, high=8),)
    """
    main = mod["main"]
    values: dict[relax.Var, relax.Expr] = {}
    given = {param: (index, 0) for index, param in enumerate(main.params)}
    found: dict[int, Places] = {}
    for var, value in flat_bindings(main):
        values[var] = value
        if isinstance(value, relax.Var) and value in given:
            given[var] = given[value]
        if not isinstance(value, relax.Call):
            continue
        name = op_name(value)
        if f"relax.{name}" in KEEPS_VALUES and value.args[0] in given:
            given[var] = given[value.args[0]]
        elif name == "where":
            root = _counted_from_the_end(value, values)
            if root is not None and root in given:
                index, _ = given[root]
                given[var] = index, 1
        elif _takes(name, value) and value.args[1] in given:
            index, from_end = given[value.args[1]]
            size = axis_size(value)
            known = found.get(index, Places(index, -size * from_end, size - 1))
            low, high = max(known.low, -size * from_end), min(known.high, size - 1)
            found[index] = Places(index, low, high)
    return tuple(found[index] for index in sorted(found))


def _takes(name: str, call: relax.Call) -> bool:
    return name == "gather_elements" or (name == "take" and str(call.attrs.mode) == "fast")


def _counted_from_the_end(
    call: relax.Call, values: dict[relax.Var, relax.Expr]
) -> relax.Var | None:
    """``i`` of ``where(i < 0, i + n, i)``."""
    condition, behind, same = call.args
    below, added = values.get(condition), values.get(behind)
    if not (isinstance(below, relax.Call) and isinstance(added, relax.Call)):
        return None
    if op_name(below) != "less" or op_name(added) != "add" or not isinstance(same, relax.Var):
        return None
    zero = constant(below.args[1])
    if zero is None or zero.any() or not below.args[0].same_as(same):
        return None
    return same if any(arg.same_as(same) for arg in added.args) else None
