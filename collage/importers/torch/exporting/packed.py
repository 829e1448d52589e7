"""Packed sequences, which ``torch.export`` cannot trace: how many steps they have data decide.

While a module is exported, what ``pack_padded_sequence`` makes keeps room for every step, with the
lengths beside it, and LSTM, GRU and RNN become an operator that is given both.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn.utils import rnn
from torch.nn.utils.rnn import PackedSequence

from collage.backends.contract.errors import ModelError

NAME = "recurrent_of_lengths"
"""The operator: ``(mode, x, lengths, states, weights, biases, layers, both) -> (output, states)``,
with ``x`` as (steps, batch, inputs)."""

_TRACED = (FakeTensor, FunctionalTensor)

_ROW_BY_ROW = frozenset(
    [
        *(nn.functional.dropout, nn.functional.linear, nn.functional.layer_norm),
        *(nn.functional.relu, nn.functional.gelu, nn.functional.silu, nn.functional.leaky_relu),
        *(nn.functional.embedding, torch.tanh, torch.sigmoid, torch.relu),
        *(nn.functional.elu, nn.functional.softplus),
    ]
)
"""Functions that give the same of a row whatever rows there are besides."""


class UnknownRowsError(ModelError, AttributeError):
    """Something is asked of the rows that depends on how many there are."""


class Rows:
    """The rows of a packed sequence: with room for all steps of all sequences.

    Attributes
    ----------
    tensor : torch.Tensor
        (steps, batch, ...).
    lengths : torch.Tensor
        Of the sequences.
    """

    def __init__(self, tensor: Any, lengths: Any) -> None:
        self.tensor = tensor
        self.lengths = lengths

    def __getattr__(self, name: str) -> Any:
        raise UnknownRowsError(_unknown(f"'.{name}'"))

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        others = (*args[1:], *(kwargs or {}).values())
        mine = args[0] if args else None
        if function is nn.functional.embedding and not isinstance(mine, Rows):
            mine = None
        if function not in _ROW_BY_ROW or not isinstance(mine, Rows) or _has_rows(others):
            raise UnknownRowsError(_unknown(f"'{getattr(function, '__name__', function)}'"))
        return Rows(function(mine.tensor, *args[1:], **(kwargs or {})), mine.lengths)


def _has_rows(values: Any) -> bool:
    return any(isinstance(value, Rows) for value in values)


def _unknown(what: str) -> str:
    return (
        f"{what} of a packed sequence's data cannot be compiled, whose rows data choose; pad it "
        "before (pad_packed_sequence) and leave out by a mask what lies behind the ends"
    )


@contextmanager
def padded_sequences(_module: Any) -> Iterator[None]:
    """Packed sequences with room for every step, in what is traced as long as this lasts.

    Parameters
    ----------
    _module : torch.nn.Module
        That is exported; it is left alone.

    Examples
    --------
    >>> with padded_sequences(torch.nn.LSTM(4, 4)):
    ...     pass
    """
    utils = torch.nn.utils.rnn
    with ExitStack() as stack:
        _exchange(stack, utils, "_VF", _Packing(utils._VF))
        for kind in (nn.LSTM, nn.GRU, nn.RNN):
            _exchange(stack, kind, "forward", _packed_or_not(kind.forward))
        yield


def has_recurrent(module: Any) -> bool:
    """Whether a module has layers that take packed sequences.

    Examples
    --------
    >>> has_recurrent(nn.Sequential(nn.GRU(2, 2))), has_recurrent(nn.ReLU())
    (True, False)
    """
    return any(isinstance(part, nn.RNNBase) for part in module.modules())


def _exchange(stack: ExitStack, owner: Any, name: str, new: Any) -> None:
    stack.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, new)


class _Packing:
    """PyTorch's functions that pack and pad, ours for what is traced."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def _pack_padded_sequence(self, x: Any, lengths: Any, batch_first: bool) -> Any:
        if not isinstance(x, _TRACED):
            return self._real._pack_padded_sequence(x, lengths, batch_first)
        x = x.transpose(0, 1) if batch_first else x
        steps = torch.arange(x.shape[0], device=lengths.device)
        return Rows(x, lengths), (steps[:, None] < lengths).sum(1)

    def _pad_packed_sequence(
        self, rows: Any, sizes: Any, batch_first: bool, filled: float, total: int
    ) -> Any:
        if not isinstance(rows, Rows):
            return self._real._pad_packed_sequence(rows, sizes, batch_first, filled, total)
        x, lengths = rows.tensor, rows.lengths
        warnings.warn(
            f"packed sequences come back with {total} steps, as with total_length={total}, also "
            "where the longest one has fewer",
            stacklevel=4,
        )
        here = torch.arange(x.shape[0], device=x.device)[:, None] < lengths.to(x.device)
        here = here.reshape(*here.shape, *[1] * (x.dim() - 2))
        x = torch.where(here, x, torch.full((), filled, dtype=x.dtype, device=x.device))
        if total > x.shape[0]:
            more = x.new_full((total - x.shape[0], *x.shape[1:]), filled)
            x = torch.cat([x, more])
        return (x.transpose(0, 1) if batch_first else x), lengths


def _packed_or_not(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def either(layer: Any, x: Any, hx: Any = None) -> Any:
        if not isinstance(x, PackedSequence):
            return forward(layer, x, hx)
        if not isinstance(x.data, Rows):
            if not isinstance(x.data, _TRACED):
                return forward(layer, x, hx)
            raise ModelError(
                "it is given a packed sequence, which cannot be compiled; let it take the padded "
                "tensor and the lengths, and pack them itself (pack_padded_sequence)"
            )
        return _of_lengths(layer, x, hx)

    return either


def _of_lengths(layer: Any, packed: Any, hx: Any) -> Any:
    """What a layer makes of a packed sequence with room for every step."""
    rows, twice = packed.data, 2 if layer.bidirectional else 1
    x = rows.tensor
    is_lstm = layer.mode == "LSTM"
    if hx is None:
        count = layer.num_layers * twice
        zeros = x.new_zeros(count, x.shape[1], layer.hidden_size)
        hidden = x.new_zeros(count, x.shape[1], layer.proj_size) if layer.proj_size else zeros
        states = [hidden, zeros] if is_lstm else [zeros]
    else:
        found = layer.permute_hidden(hx, packed.sorted_indices)
        states = list(found) if is_lstm else [found]
    # Of one step there is nothing to go along, so it gets another one.
    steps = x.shape[0]
    x = torch.cat([x, torch.zeros_like(x)]) if steps == 1 else x
    output, *last = _operator()(
        *(layer.mode, x, rows.lengths, states, layer._flat_weights),
        *(layer.bias, layer.num_layers, layer.bidirectional),
    )
    output = output[:steps]
    after = layer.permute_hidden(tuple(last) if is_lstm else last[0], packed.unsorted_indices)
    results = PackedSequence(
        Rows(output, rows.lengths),
        packed.batch_sizes,
        packed.sorted_indices,
        packed.unsorted_indices,
    )
    return results, after


@functools.cache
def _operator() -> Any:
    """The operator, which is traced and converted; run where both are compared."""
    torch.library.define(
        f"collage::{NAME}",
        "(str mode, Tensor x, Tensor lengths, Tensor[] states, Tensor[] weights, bool biases, "
        "int layers, bool both) -> Tensor[]",
    )

    def shapes(
        _mode: str, x: Any, _lengths: Any, states: Any, _weights: Any, *rest: Any
    ) -> list[Any]:
        both = bool(rest[2])
        output = x.new_empty(*x.shape[:2], states[0].shape[2] * (2 if both else 1))
        return [output, *(torch.empty_like(state) for state in states)]

    torch.library.register_fake(f"collage::{NAME}", shapes)
    torch.library.impl(f"collage::{NAME}", "cpu", _run)
    return getattr(torch.ops.collage, NAME).default


def _run(
    mode: str,
    x: Any,
    lengths: Any,
    states: list[Any],
    weights: list[Any],
    biases: bool,
    layers: int,
    both: bool,
) -> list[Any]:
    """As PyTorch runs packed sequences."""
    order = lengths.argsort(descending=True, stable=True)
    back = order.argsort()
    packed = rnn.pack_padded_sequence(x[:, order], lengths[order])
    begin = [state[:, order] for state in states]
    output, *last = getattr(torch._VF, mode.lower())(
        *(packed.data, packed.batch_sizes, begin if mode == "LSTM" else begin[0], weights),
        *(biases, layers, 0.0, False, both),
    )
    wide = PackedSequence(output, packed.batch_sizes)
    output, _ = rnn.pad_packed_sequence(wide, total_length=x.shape[0])
    return [output[:, back], *(one[:, back] for one in last)]
