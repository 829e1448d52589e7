"""The rewriting machinery of the normalization and of the passes.

A rule is a plain function that is shown one call whose operands are already rewritten, and answers
the expression that should take its place, or None. Rules look upwards through :class:`Scope`, so
one rule reads like the identity that it applies. :func:`apply_rules` walks the function in order,
rebuilds it, and starts again until no rule has anything left to say. Passes that need more than
rules of one call walk :func:`flat_bindings` themselves, over the same scope.
"""

from collage.rewrite.digits import Digits
from collage.rewrite.expressions import (
    RESHAPES,
    constant,
    dtype_of,
    is_constant,
    is_float,
    is_tensor,
    make_constant,
    op_name,
    operand_pair,
    permutation,
    reshape,
    scalar,
    with_attrs,
)
from collage.rewrite.rules import (
    ANY_CALL,
    TUPLE_ITEM,
    Rule,
    Rules,
    apply_rules,
    map_constants,
    merge_rules,
)
from collage.rewrite.scope import (
    Scope,
    count_uses,
    flat_bindings,
    map_leaves,
    primfuncs,
)

__all__ = [
    "ANY_CALL",
    "RESHAPES",
    "TUPLE_ITEM",
    "Digits",
    "Rule",
    "Rules",
    "Scope",
    "apply_rules",
    "constant",
    "count_uses",
    "dtype_of",
    "flat_bindings",
    "is_constant",
    "is_float",
    "is_tensor",
    "make_constant",
    "map_constants",
    "map_leaves",
    "merge_rules",
    "op_name",
    "operand_pair",
    "permutation",
    "primfuncs",
    "reshape",
    "scalar",
    "with_attrs",
]
