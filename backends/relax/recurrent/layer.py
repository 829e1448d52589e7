"""A recurrent layer whole: the product of its input with its weights, and the steps behind it.

Libraries have one call for both, with the gates in an order of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax.dpl import is_const, is_op, wildcard

from collage.backends.contract import Match, Verdict
from collage.backends.relax.patterns import Chain, either_order
from collage.backends.relax.recurrent.operator import NAME, Recurrence
from collage.backends.relax.static_shape import static_shape

Array = NDArray[Any]


def whole_layers() -> Iterator[tuple[str, Chain]]:
    """Chains of whole layers, by what their names add: with and without a bias of the input.

    The recurrent operator is named ``root``; all weights are constants. Its states and what else
    it reads are none of the chain's business: :func:`is_whole_layer` looks at them.

    Yields
    ------
    (str, Chain)
        For example ``_bias``.

    Examples
    --------
    >>> [name for name, _ in whole_layers()]
    ['', '_bias']
    """
    for name in ("", "_bias"):
        x, own, weights, state = wildcard(), is_const(), is_const(), wildcard()
        named = {"x": x, "input_weights": own, "weights": weights, "h0": state}
        taken = is_op("relax.matmul")(x, own)
        if name:
            named["bias"] = is_const()
            taken = either_order("relax.add", taken, named["bias"])
        call = is_op(NAME)(taken, weights, state, varg_default_wildcard=True)
        yield name, Chain(call, {"root": call, **named})


def is_whole_layer(match: Match) -> Verdict:
    """Whether a match of :func:`whole_layers` is a layer as libraries know it.

    Parameters
    ----------
    match : Match
        Its call is named ``root``.
    """
    call = match.annotated["root"]
    assert isinstance(call, relax.Call)
    one = Recurrence.of(call)
    if one.stepped:
        return Verdict.no("its states are rounded to 256 steps before they are multiplied")
    if len(static_shape(match.annotated["input_weights"])) != 2:
        return Verdict.no("the input is not multiplied by one matrix")
    width = len(one.backwards) * one.gates * one.hidden
    bias = match.annotated.get("bias")
    if bias is not None and not _is_row(static_shape(bias), width):
        return Verdict.no(f"the bias has shape {static_shape(bias)}, not one value per column")
    own = one.operands(call.args).get("bias")
    if own is not None and not isinstance(own, tvm.ir.GenericConst):
        return Verdict.no("the bias of the last gate is no constant")
    return Verdict.yes()


def _is_row(shape: Sequence[int], width: int) -> bool:
    return tuple(shape) == (1,) * (len(shape) - 1) + (width,)


@dataclass(frozen=True)
class RecurrentLayer:
    """One layer.

    Attributes
    ----------
    recurrence : Recurrence
        Its steps.
    x : relax.Expr
        The input (steps, batch, features).
    operands : mapping of str to relax.Expr
        The recurrent operator's by name.
    """

    recurrence: Recurrence
    x: relax.Expr
    operands: Mapping[str, relax.Expr]
    _input_weights: Array
    _weights: Array
    _bias: Array
    _last_bias: Array

    @classmethod
    def of(cls, call: relax.Call, resolved: Callable[[relax.Expr], relax.Expr]) -> Self | None:
        """The layer that a call of the recurrent operator ends; None where it is not whole.

        Parameters
        ----------
        call : relax.Call
            Of the recurrent operator.
        resolved : callable
            Sees through the variables of its surroundings.

        Returns
        -------
        Self or None
            With weights by gate, and biases that are 0 where the layer adds none.

        Examples
        --------
        >>> from collage.backends.relax.partitions.composites import bindings_of, resolve
        >>> from collage.backends.relax.recurrent import recurrent
        >>> from collage.testing import constant, graph
        >>> def gru(emit, x, h0):
        ...     taken = emit(relax.op.matmul(x, constant(7, 12)))
        ...     return emit(recurrent("gru", "forward", [taken, constant(1, 4, 12), h0]))
        >>> bindings = bindings_of(graph([(5, 2, 7), (1, 2, 4)], gru)["main"])
        >>> call = list(bindings.values())[1]
        >>> layer = RecurrentLayer.of(call, lambda expr: resolve(expr, bindings))
        >>> layer.x.name, layer.input_weights([0, 1, 2]).shape
        ('x0', (1, 7, 3, 4))
        """
        one = Recurrence.of(call)
        operands = one.operands(call.args)
        directions, gates, hidden = len(one.backwards), one.gates, one.hidden
        bias = np.zeros(directions * gates * hidden, one.dtype)
        taken = resolved(operands["taken"])
        if _is(taken, "relax.add"):
            sides = [resolved(arg) for arg in taken.args]
            constants = [array for side in sides if (array := _array(side)) is not None]
            products = [side for side in sides if _is(side, "relax.matmul")]
            if len(constants) != 1 or len(products) != 1 or constants[0].size != bias.size:
                return None
            taken, bias = products[0], constants[0]
        if not _is(taken, "relax.matmul"):
            return None
        input_weights = _array(resolved(taken.args[1]))
        weights = _array(resolved(operands["weights"]))
        last = np.zeros((directions, hidden), one.dtype)
        if one.has_bias:
            own = _array(resolved(operands["bias"]))
            if own is None:
                return None
            last = own
        if input_weights is None or weights is None or input_weights.ndim != 2:
            return None
        by_gate = input_weights.reshape(-1, directions, gates, hidden).transpose(1, 0, 2, 3)
        return cls(
            recurrence=one,
            x=taken.args[0],
            operands=operands,
            _input_weights=by_gate,
            _weights=weights.reshape(directions, hidden, gates, hidden),
            _bias=bias.reshape(directions, gates, hidden),
            _last_bias=last.reshape(directions, 1, hidden),
        )

    def input_weights(self, order: Sequence[int]) -> Array:
        """By which the input is multiplied: (directions, features, gates, hidden).

        Parameters
        ----------
        order : sequence of int
            Which of the operator's gates comes first, second, ….
        """
        return self._input_weights[:, :, list(order)]

    def weights(self, order: Sequence[int]) -> Array:
        """By which the state is multiplied: (directions, hidden, gates, hidden)."""
        return self._weights[:, :, list(order)]

    def bias(self, order: Sequence[int]) -> Array:
        """What is added: (directions, gates, hidden).

        That of a GRU which resets after the product has a row more: what is added to the state's
        share of the last gate.
        """
        rows = self._bias[:, list(order)]
        return np.concatenate([rows, self._last_bias], 1) if self.recurrence.has_bias else rows


def _is(expr: relax.Expr, operator: str) -> bool:
    return isinstance(expr, relax.Call) and getattr(expr.op, "name", "") == operator


def _array(expr: relax.Expr) -> Array | None:
    return np.asarray(expr.value.numpy()) if isinstance(expr, tvm.ir.GenericConst) else None
