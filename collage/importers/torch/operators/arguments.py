"""What converters of exported programs ask of a node and of the importer."""

from __future__ import annotations

from typing import Any, Protocol

from torch import fx
from tvm import relax

from collage.backends.relax.static_shape import tensor_shape


class Importer(Protocol):
    """The importer, as a converter sees it."""

    @property
    def block_builder(self) -> relax.BlockBuilder:
        """What the function is made with."""

    def emit(self, expr: relax.Expr) -> relax.Var:
        """Bind an expression to a variable of the function that is made."""

    def value(self, argument: Any) -> Any:
        """What stands for a node, or for the nodes in a list; everything else is itself."""

    def depends_on_input(self, node: fx.Node) -> bool:
        """Whether a node's value follows from what the network is given, not from weights alone."""

    def is_never_negative(self, expr: relax.Expr) -> bool:
        """Whether an integer tensor is known to hold no negative values."""


def arguments(importer: Importer, node: fx.Node, *names: str) -> list[Any]:
    """A node's arguments by the names that the operator's schema has for them; defaults filled in.

    A name that the schema lacks gives None.

    Parameters
    ----------
    importer : Importer
        Translates what nodes made.
    node : fx.Node
        A call of an operator.
    *names : str
        Of its schema.

    Returns
    -------
    list
        Translated, in the order of the names.
    """
    given: dict[str, Any] = dict(node.kwargs)
    for position, argument in enumerate(node.target._schema.arguments):
        if position < len(node.args):
            given[argument.name] = node.args[position]
        elif argument.name not in given and argument.has_default_value():
            given[argument.name] = argument.default_value
    return [importer.value(given.get(name)) for name in names]


def shape_of(expr: relax.Expr) -> list[int]:
    """A tensor's extents."""
    return [int(extent) for extent in tensor_shape(expr.ty) or ()]


def dtype_of(expr: relax.Expr) -> str:
    """A tensor's element type; empty for what is no tensor."""
    return str(expr.ty.dtype) if isinstance(expr.ty, relax.TensorType) else ""
