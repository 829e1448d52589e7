"""LSTM, GRU and RNN: one product for what all steps take in, then the steps one by one.

The steps are unrolled, so that the search sees ordinary products and activations. What a sequence
shorter than the longest one has behind its end is computed and thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.node import (
    Node,
    Refused,
    const,
    constant_of,
    fixed_tensor,
    shape_of,
)
from collage.importers.onnx.operators.quantized import stepped

Function = Callable[[relax.Expr], relax.Expr]

_SCALED: dict[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, None),
    "thresholdedrelu": (1.0, None),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, None),
}
"""Functions with parameters: the defaults of alpha and beta, None for one that it does not have."""


@dataclass(frozen=True)
class _Kind:
    """What sets a kind of cell apart: how many gates it has, their functions, and its step."""

    gates: int
    functions: tuple[str, ...]
    step: Callable[[_Cell, relax.Expr, list[relax.Expr]], list[relax.Expr]]
    states: int = 1
    """Tensors that go from step to step: the hidden state, and the LSTM's cell."""
    entering: Callable[[Node, relax.Expr], relax.Expr] = lambda _, x: x
    """What is done to values before they are multiplied by weights."""


@dataclass(frozen=True)
class _Cell:
    """One direction: weights as they are multiplied by, biases, functions."""

    node: Node
    kind: _Kind
    hidden: int
    weight: relax.Expr
    recurrent: relax.Expr
    input_bias: relax.Expr | None
    recurrent_bias: relax.Expr | None
    peepholes: list[relax.Expr]
    functions: list[Function]

    def emit(self, expr: relax.Expr) -> relax.Expr:
        return self.node.emit(expr)

    def gate(self, x: relax.Expr, index: int) -> relax.Expr:
        """The columns of one gate."""
        return self.emit(
            op.strided_slice(x, [1], [index * self.hidden], [(index + 1) * self.hidden])
        )

    def clipped(self, x: relax.Expr) -> relax.Expr:
        """What goes into a function, within the limits that the node asks for."""
        limit = self.node.attributes.get("clip")
        return x if limit is None else self.emit(op.clip(x, -float(limit), float(limit)))

    def apply(self, which: int, x: relax.Expr) -> relax.Expr:
        return self.functions[which](self.clipped(x))

    def across(self, h: relax.Expr) -> relax.Expr:
        """The share of the hidden state, all gates."""
        return self.emit(op.matmul(self.kind.entering(self.node, h), self.recurrent))

    def columns(self, begin: int, end: int) -> relax.Expr:
        """Recurrent weights of some gates."""
        value = constant_of(self.recurrent)
        low, high = begin * self.hidden, end * self.hidden
        if value is not None:
            return fixed_tensor(value[:, low:high].copy())
        return self.emit(op.strided_slice(self.recurrent, [1], [low], [high]))


def _sum(cell: _Cell, *terms: relax.Expr) -> relax.Expr:
    total = terms[0]
    for term in terms[1:]:
        total = cell.emit(op.add(total, term))
    return total


def _rnn_step(cell: _Cell, x: relax.Expr, states: list[relax.Expr]) -> list[relax.Expr]:
    return [cell.apply(0, _sum(cell, x, cell.across(states[0])))]


def _gru_step(cell: _Cell, x: relax.Expr, states: list[relax.Expr]) -> list[relax.Expr]:
    (h,) = states
    emit = cell.emit
    before = bool(cell.node.integer("linear_before_reset", 0))
    across = cell.across(h) if before else emit(op.matmul(h, cell.columns(0, 2)))
    z = cell.apply(0, _sum(cell, cell.gate(x, 0), cell.gate(across, 0)))
    r = cell.apply(0, _sum(cell, cell.gate(x, 1), cell.gate(across, 1)))
    bias = [] if cell.recurrent_bias is None else [cell.recurrent_bias]
    if before:
        kept = emit(op.multiply(r, _sum(cell, cell.gate(across, 2), *bias)))
    else:
        kept = _sum(cell, emit(op.matmul(emit(op.multiply(r, h)), cell.columns(2, 3))), *bias)
    new = cell.apply(1, _sum(cell, cell.gate(x, 2), kept))
    # (1 - z) * new + z * h
    return [emit(op.add(new, emit(op.multiply(z, emit(op.subtract(h, new))))))]


def _lstm_step(cell: _Cell, x: relax.Expr, states: list[relax.Expr]) -> list[relax.Expr]:
    h, c = states
    emit, peep = cell.emit, cell.peepholes
    gates = _sum(cell, x, cell.across(h))

    def looking(gate: int, hole: int, at: relax.Expr) -> relax.Expr:
        own = cell.gate(gates, gate)
        return _sum(cell, own, emit(op.multiply(peep[hole], at))) if peep else own

    i = cell.apply(0, looking(0, 0, c))
    if cell.node.integer("input_forget", 0):
        f = emit(op.subtract(const(1.0, cell.node.dtype(0)), i))
    else:
        f = cell.apply(0, looking(2, 2, c))
    candidate = cell.apply(1, cell.gate(gates, 3))
    c = _sum(cell, emit(op.multiply(f, c)), emit(op.multiply(i, candidate)))
    o = cell.apply(0, looking(1, 1, c))
    return [emit(op.multiply(o, cell.functions[2](c))), c]


_KINDS = {
    "RNN": _Kind(1, ("tanh",), _rnn_step),
    "GRU": _Kind(3, ("sigmoid", "tanh"), _gru_step),
    "LSTM": _Kind(4, ("sigmoid", "tanh", "tanh"), _lstm_step, states=2),
}


def _convert(node: Node, kind: _Kind) -> relax.Expr:
    emit, batch_first = node.emit, bool(node.integer("layout", 0))
    x = node.operand(0)
    if batch_first:
        x = emit(op.permute_dims(x, [1, 0, 2]))
    steps, batch, _ = shape_of(x)
    directions, _, hidden = node.shape(2)
    direction = node.text("direction", "forward")
    functions = _functions(node, kind, directions)
    lengths = _lengths(node, steps)
    outputs, finals = [], []
    for which in range(directions):
        cell = _cell(node, kind, which, hidden, functions[which])
        states = [_initial(node, 5 + s, which, batch, hidden) for s in range(kind.states)]
        backwards = which == 1 or direction == "reverse"
        output, states = _run(cell, kind, x, states, lengths, backwards)
        outputs.append(output)
        finals.append(states)
    whole = _joined(node, outputs, 1)
    axis = 1 if batch_first else 0
    extents = [batch, 1, hidden] if batch_first else [1, batch, hidden]
    if batch_first:
        whole = emit(op.permute_dims(whole, [2, 0, 1, 3]))
    last = [
        _joined(node, [emit(op.reshape(states[s], extents)) for states in finals], axis)
        for s in range(kind.states)
    ]
    return relax.Tuple([whole, *last])


def _joined(node: Node, parts: Sequence[relax.Expr], axis: int) -> relax.Expr:
    return parts[0] if len(parts) == 1 else node.emit(op.concat(list(parts), axis))


def _run(
    cell: _Cell,
    kind: _Kind,
    x: relax.Expr,
    states: list[relax.Expr],
    lengths: relax.Expr | None,
    backwards: bool,
) -> tuple[relax.Expr, list[relax.Expr]]:
    """All steps of one direction: outputs as (steps, 1, batch, hidden), and the last states."""
    emit, dtype = cell.emit, cell.node.dtype(0)
    steps, batch, width = shape_of(x)
    flat = kind.entering(cell.node, emit(op.reshape(x, [steps * batch, width])))
    taken = emit(op.matmul(flat, cell.weight))
    if cell.input_bias is not None:
        taken = emit(op.add(taken, cell.input_bias))
    outputs: dict[int, relax.Expr] = {}
    for step in reversed(range(steps)) if backwards else range(steps):
        row = emit(op.strided_slice(taken, [0], [step * batch], [(step + 1) * batch]))
        after = kind.step(cell, row, states)
        output = after[0]
        if lengths is not None:
            live = emit(op.greater(lengths, const(step, "int32")))
            output = emit(op.where(live, output, const(0.0, dtype)))
            after = [emit(op.where(live, new, old)) for new, old in zip(after, states, strict=True)]
        states = after
        outputs[step] = emit(op.reshape(output, [1, 1, batch, cell.hidden]))
    return _joined(cell.node, [outputs[step] for step in range(steps)], 0), states


def _cell(node: Node, kind: _Kind, which: int, hidden: int, functions: list[Function]) -> _Cell:
    dtype, width = node.dtype(0), kind.gates * hidden
    input_bias = recurrent_bias = None
    if node.has(3):
        both = _part(node, 3, which)
        input_bias, recurrent_bias = (_columns(node, both, i * width, width) for i in range(2))
        if kind.gates == 3:
            # A GRU resets the share of the hidden state, with its bias, in the last gate.
            early = _columns(node, recurrent_bias, 0, 2 * hidden)
            recurrent_bias = _columns(node, recurrent_bias, 2 * hidden, hidden)
            early = node.emit(op.concat([early, const([0.0] * hidden, dtype)], 0))
        else:
            early = recurrent_bias
        input_bias = node.emit(op.add(input_bias, early))
    peepholes = []
    if kind.gates == 4 and node.has(7):
        holes = _part(node, 7, which)
        peepholes = [_columns(node, holes, i * hidden, hidden) for i in range(3)]
    weight, recurrent = (_turned(node, _part(node, i, which)) for i in (1, 2))
    return _Cell(
        *(node, kind, hidden, weight, recurrent),
        *(input_bias, recurrent_bias, peepholes, functions),
    )


def _part(node: Node, index: int, which: int) -> relax.Expr:
    """What an input holds for one direction."""
    value = node.constant(index)
    if value is not None:
        return fixed_tensor(value[which].copy())
    part = node.emit(op.strided_slice(node.operand(index), [0], [which], [which + 1]))
    return node.emit(op.reshape(part, node.shape(index)[1:]))


def _columns(node: Node, x: relax.Expr, begin: int, count: int) -> relax.Expr:
    value = constant_of(x)
    if value is not None:
        return fixed_tensor(value[begin : begin + count].copy())
    return node.emit(op.strided_slice(x, [0], [begin], [begin + count]))


def _turned(node: Node, x: relax.Expr) -> relax.Expr:
    value = constant_of(x)
    if value is not None:
        return fixed_tensor(value.T.copy())
    return node.emit(op.permute_dims(x, [1, 0]))


def _initial(node: Node, index: int, which: int, batch: int, hidden: int) -> relax.Expr:
    """A state before the first step."""
    if not node.has(index):
        return node.emit(op.zeros([batch, hidden], node.dtype(0)))
    state, axis = node.operand(index), node.integer("layout", 0)
    part = node.emit(op.strided_slice(state, [axis], [which], [which + 1]))
    return node.emit(op.reshape(part, [batch, hidden]))


def _lengths(node: Node, steps: int) -> relax.Expr | None:
    """How long each sequence is, as a column; None where all are as long as the longest."""
    if not node.has(4):
        return None
    known = node.constant(4)
    if known is not None and (known >= steps).all():
        return None
    lengths = node.emit(op.astype(node.operand(4), "int32"))
    return node.emit(op.reshape(lengths, [node.shape(4)[0], 1]))


def _functions(node: Node, kind: _Kind, directions: int) -> list[list[Function]]:
    """The functions of each direction; parameters belong to those that take them, in order."""
    default = [name for _ in range(directions) for name in kind.functions]
    given = node.attributes.get("activations") or default
    names = [n.decode() if isinstance(n, bytes) else str(n) for n in given]
    if len(names) != len(default):
        raise Refused(f"{len(names)} activations where it takes {len(default)}")
    alphas = [float(a) for a in node.attributes.get("activation_alpha", ())]
    betas = [float(b) for b in node.attributes.get("activation_beta", ())]
    found = []
    for name in names:
        alpha, beta = _SCALED.get(name.lower(), (None, None))
        if alpha is not None and alphas:
            alpha = alphas.pop(0)
        if beta is not None and betas:
            beta = betas.pop(0)
        found.append(_function(node, name, alpha or 0.0, beta or 0.0))
    size = len(kind.functions)
    return [found[i * size : (i + 1) * size] for i in range(directions)]


def _function(node: Node, name: str, alpha: float, beta: float) -> Function:
    emit, dtype = node.emit, node.dtype(0)
    a, b, zero, one = (const(value, dtype) for value in (alpha, beta, 0.0, 1.0))

    def affine(x: relax.Expr) -> relax.Expr:
        return emit(op.add(emit(op.multiply(x, a)), b))

    def elu(x: relax.Expr) -> relax.Expr:
        below = emit(op.multiply(a, emit(op.subtract(emit(op.exp(x)), one))))
        return emit(op.where(emit(op.greater_equal(x, zero)), x, below))

    def softplus(x: relax.Expr) -> relax.Expr:
        # Not log(1 + exp(x)), which overflows.
        small = emit(op.exp(emit(op.negative(emit(op.abs(x))))))
        return emit(op.add(emit(op.nn.relu(x)), emit(op.log(emit(op.add(small, one))))))

    functions: dict[str, Function] = {
        "relu": lambda x: emit(op.nn.relu(x)),
        "tanh": lambda x: emit(op.tanh(x)),
        "sigmoid": lambda x: emit(op.sigmoid(x)),
        "affine": affine,
        "leakyrelu": lambda x: emit(op.nn.leakyrelu(x, alpha)),
        "thresholdedrelu": lambda x: emit(op.where(emit(op.greater_equal(x, a)), x, zero)),
        "scaledtanh": lambda x: emit(op.multiply(a, emit(op.tanh(emit(op.multiply(b, x)))))),
        "hardsigmoid": lambda x: emit(op.clip(affine(x), 0.0, 1.0)),
        "elu": elu,
        "softsign": lambda x: emit(op.divide(x, emit(op.add(one, emit(op.abs(x)))))),
        "softplus": softplus,
    }
    found = functions.get(name.lower())
    if found is None:
        raise Refused(f"the activation '{name}' is not in the standard")
    return found


def _quantized_lstm(node: Node) -> relax.Expr:
    """onnxruntime's own: weights in 8 bits, and what they are multiplied by rounded to 256 steps.

    Computed with the rounded values themselves, which come to the same as sums of integers scaled.
    """
    weights = [_dequantized(node, 1, 8), _dequantized(node, 2, 10)]
    inputs = [node.operand(0), *weights, *node.inputs[3:8]]
    kind = replace(_KINDS["LSTM"], entering=stepped)
    return _convert(replace(node, inputs=inputs), kind)


def _dequantized(node: Node, index: int, scale: int) -> relax.Expr:
    """Weights as the standard has them: (directions, gates, inputs), float32."""
    directions, rows, columns = node.shape(index)
    found = []
    for which in (index, scale, scale + 1):
        value = node.fixed(which, "weights").astype("float32")
        found.append(value if which == index else value.reshape(directions, 1, -1))
    values, scales, points = found
    whole = np.broadcast_to((values - points) * scales, (directions, rows, columns))
    return fixed_tensor(whole.transpose(0, 2, 1).copy())


CONVERTERS = {
    "RNN": lambda node: _convert(node, _KINDS["RNN"]),
    "GRU": lambda node: _convert(node, _KINDS["GRU"]),
    "LSTM": lambda node: _convert(node, _KINDS["LSTM"]),
}

MICROSOFT = {"DynamicQuantizeLSTM": _quantized_lstm}
