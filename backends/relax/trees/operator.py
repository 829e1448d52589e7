"""An operator for what ensembles of decision trees do with the rows of a table.

Written out in operators of Relax, each level of the trees is a dozen passes over all rows and
trees.

``collage.tree_ensemble(x, nodes, trees[, leaves])``:

- ``x`` (rows, features), float32 or float64.
- ``nodes`` (N * 4,), int32 or int64 for thresholds in float32 or float64: a node is four words side
  by side.

  - its feature;
  - the bits of its threshold, with which the feature is compared: ``x <= threshold``;
  - four times the node to go on with when that does not hold, and two bits: with 1, what is not a
    number counts as holding; with 2, where nodes differ in that, it is ``x < threshold``;
  - four times the node to go on with when it holds. A leaf leads to itself: its threshold is not a
    number, so nothing ever holds there, and here it has the bits of its value, or without
    values of its own its row of ``leaves``.

- ``trees`` (T, 2) int32: four times the root, and the target that the leaves' values are for.
- ``leaves`` (L, targets), of the type of ``x``: where a leaf speaks of several targets.

It gives what all trees say of each target (rows, targets): their sum, least or largest value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tvm import ir, relax

from collage.backends.relax.own_operators import make_known
from collage.backends.relax.static_shape import static_shape, tensor_dtype

NAME = "collage.tree_ensemble"

COMBINED = ("sum", "min", "max")
"""What is made of the values of all trees."""

COMPARED = ("leq", "lt", "both")
"""How nodes compare: all with ``<=``, all with ``<``, or each as its bit says."""

MISSING, STRICT = 1, 2
"""Bits beside the node to go on with."""

LINK = 4
"""Nodes are named by so many times their numbers: where their first word stands."""


@dataclass(frozen=True)
class Ensemble:
    """What a call of the operator computes.

    Attributes
    ----------
    rows, features, trees, targets : int
        Extents.
    dtype : str
        Of the table and of the results.
    combined : str
        One of :data:`COMBINED`.
    compared : str
        One of :data:`COMPARED`.
    missing : bool
        Whether what is not a number counts as holding at any node.
    has_leaves : bool
        Whether leaves are rows of a table.
    word : str
        The type of a node's words.

    Examples
    --------
    >>> one = Ensemble(100, 8, 20, 3, "float32", "sum", "leq", False, True)
    >>> one.threshold, one.neutral
    ('float32', 0.0)
    """

    rows: int
    features: int
    trees: int
    targets: int
    dtype: str
    combined: str
    compared: str
    missing: bool
    has_leaves: bool
    word: str = "int32"

    @classmethod
    def of(cls, call: relax.Call) -> Self:
        """Read a call."""
        rows, features = static_shape(call.args[0])
        attrs = call.attrs
        return cls(
            *(rows, features, static_shape(call.args[2])[0], int(attrs["targets"])),
            dtype=tensor_dtype(call.args[0]),
            combined=str(attrs["combined"]),
            compared=str(attrs["compared"]),
            missing=bool(attrs["missing"]),
            has_leaves=len(call.args) > 3,
            word=tensor_dtype(call.args[1]),
        )

    @property
    def threshold(self) -> str:
        """The type whose bits are in a word."""
        return "float64" if self.word == "int64" else "float32"

    @property
    def neutral(self) -> float:
        """What changes nothing that it is combined with."""
        return {"sum": 0.0, "min": float("inf"), "max": float("-inf")}[self.combined]


def tree_ensemble(
    operands: Sequence[relax.Expr],
    targets: int,
    *,
    combined: str = "sum",
    compared: str = "leq",
    missing: bool = False,
) -> relax.Call:
    """A call of the operator.

    Parameters
    ----------
    operands : sequence of relax.Expr
        In the operator's order, of known shapes.
    targets : int
        How many results a row has.
    combined, compared, missing
        As :class:`Ensemble` has them.

    Returns
    -------
    relax.Call
        Its type is not inferred yet.

    Examples
    --------
    A tree that looks at the first of two features:

    >>> import numpy as np
    >>> from collage.backends.relax.trees import Branches, packed
    >>> features, links = np.array([0, 0, 0]), np.array([[1, 2], [1, 1], [2, 2]])
    >>> branches = Branches(features, np.float32([0.5, 0, 0]), *links.T)
    >>> table = packed(branches, np.array([0]), values=np.float32([0, -1, 1]))
    >>> from collage.testing import graph
    >>> mod = graph(
    ...     [(5, 2)],
    ...     lambda emit, x: tree_ensemble([x, *map(relax.const, table)], 1),
    ... )
    >>> [int(extent) for extent in mod["main"].ret_ty.shape]
    [5, 1]
    """
    attrs = ir.make_node(
        "ir.DictAttrs", targets=targets, combined=combined, compared=compared, missing=missing
    )
    return relax.Call(ir.Op.get(NAME), list(operands), attrs, [])


def _infer(call: relax.Call, _: relax.BlockBuilder) -> relax.Type:
    one = Ensemble.of(call)
    return relax.TensorType((one.rows, one.targets), one.dtype)


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    # At the first use: programs are written with TVM's whole tensor library.
    from collage.backends.relax.trees.program import legalize_plainly

    return legalize_plainly(builder, call)


make_known(NAME, "What ensembles of decision trees say of rows.", _infer, _legalize)
