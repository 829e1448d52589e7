"""LSTM, GRU and RNN: one product for what all steps take in, then one operator for the steps.

Cells with functions, limits or peepholes of their own, and sequences of one step, are written out.
What a sequence shorter than the longest one has behind its end is computed and thrown away.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.backends.relax.recurrent import DIRECTIONS, recurrent
from collage.backends.relax.stepped import stepped
from collage.importers.onnx.operators.node import (
    Node,
    Refused,
    const,
    constant_of,
    fixed_tensor,
    shape_of,
)
from collage.rewrite.recurrent import Cell, Function, write_out

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
    """What sets a kind of cell apart: how many gates it has, and their functions."""

    gates: int
    functions: tuple[str, ...]
    states: int = 1
    """Tensors that go from step to step: the hidden state, and the LSTM's cell."""
    stepped: bool = False
    """Whether values are rounded to 256 steps before they are multiplied by weights."""


_KINDS = {
    "RNN": _Kind(1, ("tanh",)),
    "GRU": _Kind(3, ("sigmoid", "tanh")),
    "LSTM": _Kind(4, ("sigmoid", "tanh", "tanh"), states=2),
}


def _convert(node: Node, kind: _Kind) -> relax.Expr:
    emit, batch_first = node.emit, bool(node.integer("layout", 0))
    x = node.operand(0)
    if batch_first:
        x = emit(op.permute_dims(x, [1, 0, 2]))
    steps, batch, _ = shape_of(x)
    directions, _, hidden = node.shape(2)
    direction = node.text("direction", "forward")
    if direction not in DIRECTIONS:
        raise Refused(f"the direction '{direction}' is not in the standard")
    names = _function_names(node, kind, directions)
    cell = _cell_name(node, kind, names)
    operands = {
        "taken": _taken(node, kind, x, cell),
        "weights": _turned(node, node.operand(2)),
        "h0": _initial(node, 5, directions, batch, hidden),
    }
    if kind.states == 2:
        operands["c0"] = _initial(node, 6, directions, batch, hidden)
    if cell == "gru_reset_after":
        operands["bias"] = _last_bias(node, directions, hidden)
    lengths = _lengths(node, steps)
    if lengths is not None:
        operands["lengths"] = lengths
    if steps > 1 and _is_standard(node, kind, names):
        result = emit(recurrent(cell, direction, list(operands.values()), kind.stepped))
        results = [emit(relax.TupleGetItem(result, i)) for i in range(1 + kind.states)]
    else:
        written = _written_out(node, kind, cell, direction, names)
        results = list(write_out(written, operands).fields)
    if batch_first:
        results[0] = emit(op.permute_dims(results[0], [2, 0, 1, 3]))
        results[1:] = [emit(op.permute_dims(last, [1, 0, 2])) for last in results[1:]]
    return relax.Tuple(results)


def _cell_name(node: Node, kind: _Kind, names: list[str]) -> str:
    if kind.gates == 4:
        return "lstm"
    if kind.gates == 3:
        return "gru_reset_after" if node.integer("linear_before_reset", 0) else "gru"
    return "rnn_relu" if {name.lower() for name in names} == {"relu"} else "rnn_tanh"


def _is_standard(node: Node, kind: _Kind, names: list[str]) -> bool:
    """Whether the operator computes this cell."""
    usual = {kind.functions, ("relu",)} if kind.gates == 1 else {kind.functions}
    size = len(kind.functions)
    lower = [name.lower() for name in names]
    sets = {tuple(lower[i : i + size]) for i in range(0, len(lower), size)}
    odd = node.attributes.get("clip") is not None or bool(node.integer("input_forget", 0))
    return len(sets) == 1 and sets <= usual and not odd and not node.has(7)


def _written_out(node: Node, kind: _Kind, cell: str, direction: str, names: list[str]) -> Cell:
    directions, _, hidden = node.shape(2)
    clip = node.attributes.get("clip")
    holes: list[list[relax.Expr]] = [[] for _ in range(directions)]
    if kind.gates == 4 and node.has(7):
        for which in range(directions):
            own = _row(node, 7, which)
            holes[which] = [_columns(node, own, i * hidden, hidden) for i in range(3)]
    return Cell(
        *(node.emit, cell, direction, _functions(node, kind, names)),
        clip=None if clip is None else float(clip),
        coupled=bool(node.integer("input_forget", 0)),
        peepholes=holes,
        stepped=kind.stepped,
    )


def _taken(node: Node, kind: _Kind, x: relax.Expr, cell: str) -> relax.Expr:
    """The input's share of all gates of all directions, biases included."""
    emit = node.emit
    if kind.stepped:
        x = stepped(node.emit, x)
    directions, width, taken_in = node.shape(1)
    value = node.constant(1)
    if value is not None:
        weights = fixed_tensor(value.reshape(directions * width, taken_in).T.copy())
    else:
        flat = emit(op.reshape(node.operand(1), [directions * width, taken_in]))
        weights = emit(op.permute_dims(flat, [1, 0]))
    taken = emit(op.matmul(x, weights))
    if not node.has(3):
        return taken
    parts = [_bias(node, which, width, cell) for which in range(directions)]
    bias = parts[0] if directions == 1 else emit(op.concat(parts, 0))
    return emit(op.add(taken, bias))


def _bias(node: Node, which: int, width: int, cell: str) -> relax.Expr:
    """What is added to the input's share; a GRU that resets the state's share adds that bias
    before it does, in the last gate."""
    both = _row(node, 3, which)
    own, states = (_columns(node, both, i * width, width) for i in range(2))
    if cell == "gru_reset_after":
        early = _columns(node, states, 0, width // 3 * 2)
        states = node.emit(op.concat([early, const([0.0] * (width // 3), node.dtype(0))], 0))
    return node.emit(op.add(own, states))


def _last_bias(node: Node, directions: int, hidden: int) -> relax.Expr:
    if not node.has(3):
        return const(np.zeros((directions, hidden)), node.dtype(0))
    value = node.constant(3)
    if value is not None:
        return fixed_tensor(value[:, 5 * hidden :].copy())
    return node.emit(op.strided_slice(node.operand(3), [1], [5 * hidden], [6 * hidden]))


def _turned(node: Node, weights: relax.Expr) -> relax.Expr:
    """Weights that states are multiplied by from the left."""
    value = constant_of(weights)
    if value is not None:
        return fixed_tensor(value.transpose(0, 2, 1).copy())
    return node.emit(op.permute_dims(weights, [0, 2, 1]))


def _row(node: Node, index: int, which: int) -> relax.Expr:
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


def _initial(node: Node, index: int, directions: int, batch: int, hidden: int) -> relax.Expr:
    """States before the first step, as (directions, batch, hidden)."""
    if not node.has(index):
        return const(np.zeros((directions, batch, hidden)), node.dtype(0))
    state = node.operand(index)
    if node.integer("layout", 0):
        state = node.emit(op.permute_dims(state, [1, 0, 2]))
    return state


def _lengths(node: Node, steps: int) -> relax.Expr | None:
    """How long each sequence is; None where all are as long as the longest."""
    if not node.has(4):
        return None
    known = node.constant(4)
    if known is not None and (known >= steps).all():
        return None
    return node.emit(op.astype(node.operand(4), "int32"))


def _function_names(node: Node, kind: _Kind, directions: int) -> list[str]:
    """The functions of all directions, in order."""
    default = [name for _ in range(directions) for name in kind.functions]
    given = node.attributes.get("activations") or default
    names = [n.decode() if isinstance(n, bytes) else str(n) for n in given]
    if directions == 1 and len(names) == 2 * len(default):
        # The standard's own default of an RNN is of both directions, and onnxruntime writes it.
        names = names[: len(default)]
    if len(names) != len(default):
        raise Refused(f"{len(names)} activations where it takes {len(default)}")
    return names


def _functions(node: Node, kind: _Kind, names: list[str]) -> list[list[Function]]:
    """The functions of each direction; parameters belong to those that take them, in order."""
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
    return [found[i : i + size] for i in range(0, len(found), size)]


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
    kind = replace(_KINDS["LSTM"], stepped=True)
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
