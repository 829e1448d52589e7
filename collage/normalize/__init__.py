"""What importers leave behind becomes the canonical form that every backend's patterns expect.

Each family of rewrites stands in a module of its own and is a table of rules by operator, which
:mod:`collage.rewrite` applies. Every rule is an identity of inference-time mathematics, and its
tests run the module before and after.
"""

from __future__ import annotations

import tvm
from tvm import relax

from collage.normalize import (
    activations,
    arithmetic,
    attention,
    cleanup,
    clipping,
    constants,
    convolutions,
    dense,
    exact,
    experts,
    indexing,
    nary,
    norms,
    opaque,
    pooling,
    stepped,
)
from collage.rewrite import Digits, apply_rules, merge_rules

__all__ = ["normalize"]

_FAMILIES = (
    constants.RULES,
    opaque.RULES,
    cleanup.RULES,
    indexing.RULES,
    arithmetic.RULES,
    nary.RULES,
    clipping.RULES,
    norms.RULES,
    activations.RULES,
    convolutions.RULES,
    pooling.RULES,
    dense.RULES,
    experts.RULES,
    attention.RULES,
)


def normalize(mod: tvm.IRModule) -> tvm.IRModule:
    """Bring a module's ``main`` into canonical form.

    One dataflow block in A-normal form over canonical operators: batch norms folded into
    convolutions, biases as ``add`` of ``(1, C, 1, 1)`` or ``(N,)`` constants, dense layers as
    ``matmul`` by a constant, activations as single operators, constants folded, nothing dead.
    Applying it twice changes nothing more. Outputs stay equal up to rounding.

    Parameters
    ----------
    mod : tvm.IRModule
        With a Relax function ``main`` of static shapes, weights bound as constants.

    Returns
    -------
    tvm.IRModule
        A new module; other functions of ``mod`` are kept when ``main`` still uses them.

    Raises
    ------
    ModelError
        When ``main`` has control flow.

    Examples
    --------
    A SiLU that an exporter has spelled out:

    >>> from tvm.relax import op
    >>> from collage.testing import graph
    >>> mod = graph([(8,)], lambda emit, x: op.multiply(x, emit(op.sigmoid(x))))
    >>> [str(b.value.op.name) for b in normalize(mod)["main"].body.blocks[0].bindings]
    ['relax.nn.silu']
    """
    mod = constants.share_constants(mod)
    mod = relax.transform.EliminateCommonSubexpr()(mod)
    mod = apply_rules(mod, stepped.RULES)
    digits = Digits()
    mod = apply_rules(mod, merge_rules(_FAMILIES), digits)
    # The last: whatever else looks for products of numbers has found them.
    mod = apply_rules(mod, exact.RULES, digits)
    mod = constants.share_constants(mod)
    mod = relax.transform.EliminateCommonSubexpr()(mod)
    mod = relax.transform.CanonicalizeBindings()(mod)
    return relax.transform.DeadCodeElimination(["main"])(mod)
