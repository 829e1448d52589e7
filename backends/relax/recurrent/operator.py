"""An operator for what LSTM, GRU and RNN do from step to step, which Relax has none for.

It takes what the steps read of their input already multiplied: that is one product for all steps,
which any library computes. What is left is a chain of small products, each waiting for the one
before; written out step by step a second of speech is ten thousand operators.

``collage.recurrent(taken, weights, h0[, c0][, bias][, lengths])``, with ``D`` directions, ``G``
gates in ONNX's order (LSTM ``iofc``, GRU ``zrh``) and ``H`` elements of state:

- ``taken`` (steps, batch, D * G * H): the input's share of every gate, biases included.
- ``weights`` (D, H, G * H): by which the state is multiplied from the left.
- ``h0``, and an LSTM's ``c0`` (D, batch, H): the states before the first step.
- ``bias`` (D, H), of a GRU that resets after the product: what is added to the state's share of
  its last gate.
- ``lengths`` (batch,) int32: of sequences; behind its end a sequence's results are zero, and its
  states stay.

It gives all hidden states (steps, D, batch, H) and the last states (D, batch, H).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from tvm import ir, relax

from collage.backends.relax.own_operators import make_known
from collage.backends.relax.static_shape import static_shape, tensor_dtype

NAME = "collage.recurrent"

GATES = {"lstm": 4, "gru": 3, "gru_reset_after": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""Kinds of cell and how many gates each has. ``gru_reset_after`` is ONNX's ``linear_before_reset``,
and PyTorch's only one."""

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Names of directions, and of each part whether it begins at the end."""


@dataclass(frozen=True)
class Recurrence:
    """What a call of the operator computes.

    Attributes
    ----------
    cell : str
        One of :data:`GATES`.
    direction : str
        One of :data:`DIRECTIONS`.
    steps, batch, hidden : int
        Extents.
    dtype : str
        Of all tensors but the lengths.
    has_lengths : bool
        Whether sequences end early.
    stepped : bool
        Whether the hidden states of all sequences together are rounded to 256 steps over their own
        range before they are multiplied, as where weights are 8-bit integers. Not for ``gru``.

    Examples
    --------
    >>> recurrence = Recurrence("lstm", "bidirectional", 10, 1, 64, "float32", False)
    >>> recurrence.backwards, recurrence.gates, recurrence.states
    ((False, True), 4, 2)
    """

    cell: str
    direction: str
    steps: int
    batch: int
    hidden: int
    dtype: str
    has_lengths: bool
    stepped: bool = False

    @classmethod
    def of(cls, call: relax.Call) -> Self:
        """Read a call."""
        steps, batch, _ = static_shape(call.args[0])
        hidden = static_shape(call.args[1])[1]
        cell, direction = str(call.attrs["cell"]), str(call.attrs["direction"])
        fixed = 3 + (cell == "lstm") + (cell == "gru_reset_after")
        lengths = len(call.args) > fixed
        stepped = bool(call.attrs["stepped"])
        dtype = tensor_dtype(call.args[0])
        return cls(cell, direction, steps, batch, hidden, dtype, lengths, stepped)

    @property
    def gates(self) -> int:
        """How many products a step has."""
        return GATES[self.cell]

    @property
    def states(self) -> int:
        """Tensors that go from step to step."""
        return 2 if self.cell == "lstm" else 1

    @property
    def backwards(self) -> tuple[bool, ...]:
        """For each direction, whether it begins at the end."""
        return DIRECTIONS[self.direction]

    @property
    def has_bias(self) -> bool:
        """Whether the state's share of the last gate has a bias of its own."""
        return self.cell == "gru_reset_after"

    @property
    def products(self) -> int:
        """Multiply-adds of the whole."""
        return len(self.backwards) * self.steps * self.batch * self.gates * self.hidden**2

    def operands(self, args: Sequence[Any]) -> dict[str, Any]:
        """A call's arguments, or whatever stands for them, by name."""
        names = ["taken", "weights", "h0"]
        names += ["c0"] * (self.states == 2) + ["bias"] * self.has_bias
        names += ["lengths"] * self.has_lengths
        return dict(zip(names, args, strict=True))


def recurrent(
    cell: str,
    direction: str,
    operands: Sequence[relax.Expr],
    stepped: bool = False,
) -> relax.Call:
    """A call of the operator.

    Parameters
    ----------
    cell : str
        One of :data:`GATES`.
    direction : str
        One of :data:`DIRECTIONS`.
    operands : sequence of relax.Expr
        In the operator's order, of known shapes.
    stepped : bool
        As :class:`Recurrence` has it.

    Returns
    -------
    relax.Call
        Its type is not inferred yet.

    Examples
    --------
    >>> from collage.testing import graph
    >>> shapes = [(5, 2, 12), (1, 4, 12), (1, 2, 4)]
    >>> mod = graph(shapes, lambda emit, *x: emit(recurrent("gru", "forward", x))[0])
    >>> [int(extent) for extent in mod["main"].ret_ty.shape]
    [5, 1, 2, 4]
    """
    attrs = ir.make_node("ir.DictAttrs", cell=cell, direction=direction, stepped=stepped)
    return relax.Call(ir.Op.get(NAME), list(operands), attrs, [])


def _infer(call: relax.Call, _: relax.BlockBuilder) -> relax.Type:
    one = Recurrence.of(call)
    state = (len(one.backwards), one.batch, one.hidden)
    types = [relax.TensorType((one.steps, *state), one.dtype)]
    types += [relax.TensorType(state, one.dtype)] * one.states
    return relax.TupleType(types)


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    # At the first use: programs are written with TVM's whole tensor library.
    from collage.backends.relax.recurrent.program import legalize_plainly

    return legalize_plainly(builder, call)


make_known(NAME, "The steps of LSTM, GRU and RNN.", _infer, _legalize)
