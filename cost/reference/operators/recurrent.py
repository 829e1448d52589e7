"""The recurrent operator, step by step."""

from __future__ import annotations

import numpy as np
from tvm import relax

from collage.backends.relax.recurrent import NAME, Recurrence
from collage.cost.reference.values import Array, OperatorTable, Value


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _recurrent(call: relax.Call, args: list[Value]) -> Value:
    one = Recurrence.of(call)
    operands = one.operands(args)
    outputs, lasts = [], []
    for direction, backwards in enumerate(one.backwards):
        output, states = _direction(one, operands, direction, backwards)
        outputs.append(output)
        lasts.append(states)
    return (np.stack(outputs, 1), *(np.stack(state) for state in zip(*lasts, strict=True)))


def _direction(
    one: Recurrence, operands: dict[str, Array], direction: int, backwards: bool
) -> tuple[Array, list[Array]]:
    width = one.gates * one.hidden
    taken = operands["taken"][:, :, direction * width : (direction + 1) * width]
    weights = operands["weights"][direction]
    bias = operands["bias"][direction] if one.has_bias else None
    states = [operands[name][direction] for name in ("h0", "c0") if name in operands]
    output = np.zeros((one.steps, one.batch, one.hidden), taken.dtype)
    for step in reversed(range(one.steps)) if backwards else range(one.steps):
        after = _step(one, taken[step], weights, bias, states)
        output[step] = after[0]
        if one.has_lengths:
            live = (operands["lengths"] > step)[:, None]
            output[step] = np.where(live, after[0], 0)
            after = [np.where(live, new, old) for new, old in zip(after, states, strict=True)]
        states = after
    return output, states


def _step(
    one: Recurrence, x: Array, weights: Array, bias: Array | None, states: list[Array]
) -> list[Array]:
    gates = np.split(x, one.gates, axis=1)
    columns = np.split(weights, one.gates, axis=1)
    old = states[0]
    h = _in_steps(old) if one.stepped else old
    if one.cell == "lstm":
        i, o, f, new = (a + h @ b for a, b in zip(gates, columns, strict=True))
        c = _sigmoid(f) * states[1] + _sigmoid(i) * np.tanh(new)
        return [_sigmoid(o) * np.tanh(c), c]
    if one.gates == 1:
        total = x + h @ weights
        return [np.tanh(total) if one.cell == "rnn_tanh" else np.maximum(total, 0)]
    z, r = (_sigmoid(gates[i] + h @ columns[i]) for i in range(2))
    kept = (r * h) @ columns[2] if bias is None else r * (h @ columns[2] + bias)
    new = np.tanh(gates[2] + kept)
    return [(1 - z) * new + z * old]


def _in_steps(h: Array) -> Array:
    low, high = min(h.min(), 0), max(h.max(), 0)
    scale = (high - low) / 255 or 1
    point = np.round(np.clip(-low / scale, 0, 255))
    shifted: Array = np.clip(np.round(h / scale) + point, 0, 255) - point
    return shifted * scale


RECURRENT: OperatorTable = {NAME: _recurrent}
