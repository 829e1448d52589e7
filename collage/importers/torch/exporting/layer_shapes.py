"""Shapes of LSTM, GRU, RNN and distances while programs are traced, without what they consist of.

PyTorch finds out what shapes such a layer gives by computing every step with tensors that hold no
numbers: 1,200 steps took 24 s for each time that a program is gone through. Distances ask there
whether there are more than 25 points, which no open dimension can answer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import DispatchKey
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensor

_DISTANCES = torch.ops.aten.cdist.default
_LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


@contextmanager
def shapes_of_layers() -> Iterator[None]:
    """Recurrent layers of tensors that hold no numbers give such, as long as this lasts.

    Examples
    --------
    >>> from torch._subclasses.fake_tensor import FakeTensorMode
    >>> layer = torch.nn.GRU(4, 8)
    >>> with shapes_of_layers(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
    ...     found, end = layer(mode.from_tensor(torch.zeros(20, 2, 4)))
    >>> found.shape, end.shape
    (torch.Size([20, 2, 8]), torch.Size([1, 2, 8]))
    """
    layers = [getattr(torch.ops.aten, name).input for name in _LAYERS]
    kernels = [dict(layer.py_kernels) for layer in layers]
    of_distances = dict(_DISTANCES.py_kernels)
    apart = [decomposition_table[layer] for layer in layers]
    try:
        for layer, own, function in zip(layers, kernels, apart, strict=True):
            for key in (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd):
                layer.py_kernels[key] = _of_shapes(own[key])
            layer._dispatch_cache.clear()
            # Asked before the kernels where a node of a program is gone through.
            decomposition_table[layer] = _of_shapes(function)
        for key in (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd):
            _DISTANCES.py_kernels[key] = whole_distances
        _DISTANCES._dispatch_cache.clear()
        yield
    finally:
        _DISTANCES.py_kernels.clear()
        _DISTANCES.py_kernels.update(of_distances)
        _DISTANCES._dispatch_cache.clear()
        for layer, own, function in zip(layers, kernels, apart, strict=True):
            layer.py_kernels.update(own)
            layer._dispatch_cache.clear()
            decomposition_table[layer] = function


def whole_distances(x: Any, y: Any, p: float = 2.0, compute_mode: int | None = None) -> Any:
    """Distances between two sets of points as one operator, however many points there are.

    Parameters
    ----------
    x, y : torch.Tensor
        Points.
    p : float
        The norm's power.
    compute_mode : int, optional
        As ``torch.cdist`` has it.

    Returns
    -------
    torch.Tensor
        A row for each of the first points.

    Examples
    --------
    >>> whole_distances(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]))
    tensor([[5.]])
    """
    return torch.ops.aten._cdist_forward(x, y, float(p), compute_mode)


def _of_shapes(computed: Callable[..., Any]) -> Callable[..., Any]:
    """What gives tensors of the shapes that something computes."""

    @functools.wraps(computed)
    def given(x: Any, state: Any, weights: Any, *settings: Any) -> Any:
        _biases, _layers, _dropout, _train, both, _batch_first = settings
        states = list(state) if isinstance(state, list | tuple) else [state]
        if not isinstance(x, FakeTensor) or {one.dtype for one in (*states, *weights)} != {x.dtype}:
            return computed(x, state, weights, *settings)
        found = x.new_empty(*x.shape[:2], (2 if both else 1) * states[0].shape[2])
        return (found, *(torch.empty_like(one) for one in states))

    return given
