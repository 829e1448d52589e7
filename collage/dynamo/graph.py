"""A traced graph, compiled for what it is called with: once for each set of shapes and weights."""

from __future__ import annotations

import shutil
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from collage.backends.contract.errors import ModelError, telling_line
from collage.backends.storage import OwnFolder, scratch_parent
from collage.bundle import Bundle
from collage.dynamo.options import Options
from collage.pipeline.optimize import optimize

_MOST_KEPT = 8
"""Shapes and sets of weights that a graph stays compiled for; PyTorch itself gives up recompiling a
function after as many."""


@dataclass(frozen=True)
class _Compiled:
    """A graph for certain shapes and weights.

    Attributes
    ----------
    bundle : Bundle
        What was compiled.
    weights : tuple
        The tensors whose values are in it, with their state.
    """

    bundle: Bundle
    weights: tuple[tuple[torch.Tensor, tuple[int, ...]], ...]

    def holds(self, weights: Sequence[torch.Tensor]) -> bool:
        """Whether these are the weights that were compiled in, as they were."""
        return all(
            given is kept and _state(given) == state
            for given, (kept, state) in zip(weights, self.weights, strict=True)
        )


class Graph:
    """A function of tensors without side effects, called as PyTorch calls what a backend returns.

    Parameters
    ----------
    functional : torch.fx.GraphModule
        From AOTAutograd.
    weights : sequence of int
        Places of the inputs that are a module's parameters and buffers: compiled in.
    options : Options
        Of the search.
    """

    def __init__(
        self, functional: fx.GraphModule, weights: Sequence[int], options: Options
    ) -> None:
        self._functional = functional
        self._weights = tuple(weights)
        self._options = options
        self._folder = OwnFolder(scratch_parent())
        self._compiled: OrderedDict[tuple[Any, ...], _Compiled] = OrderedDict()
        self._made = 0
        # A virtual machine runs one call at a time.
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Sequence[Any]:
        weights = [args[place] for place in self._weights]
        given = [arg for place, arg in enumerate(args) if place not in self._weights]
        with self._lock:
            compiled = self._for(weights, given)
            tensors = [arg for arg in given if isinstance(arg, torch.Tensor)]
            found = compiled.bundle.compute(tensors)
        signature = compiled.bundle[compiled.bundle.main].entry.signature
        assert signature is not None, "exported programs have one"
        result: Sequence[Any] = signature.returned(found)
        return result

    def _for(self, weights: Sequence[torch.Tensor], given: Sequence[Any]) -> _Compiled:
        key = (tuple(map(id, weights)), *map(_kind, given))
        found = self._compiled.get(key)
        if found is not None and not found.holds(weights):
            self._forget(key)
            found = None
        if found is None:
            # Whatever PyTorch has under way where the call comes from, exporting is none of it.
            with _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
                found = self._compiled[key] = self._compile(weights, given)
        self._compiled.move_to_end(key)
        while len(self._compiled) > _MOST_KEPT:
            self._forget(next(iter(self._compiled)))
        return found

    def _compile(self, weights: Sequence[torch.Tensor], given: Sequence[Any]) -> _Compiled:
        device = _device(weights, given)
        program = _exported(_Closed(self._functional, self._weights, weights, given))
        keywords = self._options.for_optimize(device)
        if keywords["log"] is None:
            # What other weights or shapes share is measured once.
            keywords["log"] = self._folder.path / "log.jsonl"
        result = optimize(program, **keywords)
        self._made += 1
        bundle = Bundle(result.export(self._folder.path / str(self._made)))
        return _Compiled(bundle, tuple((weight, _state(weight)) for weight in weights))

    def _forget(self, key: tuple[Any, ...]) -> None:
        shutil.rmtree(self._compiled.pop(key).bundle.folder, ignore_errors=True)


class _Closed(torch.nn.Module):
    """The graph with its weights and plain numbers in it, and only tensors to give."""

    def __init__(
        self,
        functional: fx.GraphModule,
        places: Sequence[int],
        weights: Sequence[torch.Tensor],
        given: Sequence[Any],
    ) -> None:
        super().__init__()
        self.functional = functional
        self._places = dict(zip(places, weights, strict=True))
        for place, weight in self._places.items():
            self.register_buffer(f"weight_{place}", weight.detach())
        self._given = given

    def example(self) -> tuple[torch.Tensor, ...]:
        """The tensors of the call."""
        return tuple(arg.detach() for arg in self._given if isinstance(arg, torch.Tensor))

    def forward(self, *tensors: torch.Tensor) -> Any:
        rest, left = iter(self._given), iter(tensors)
        args = []
        for place in range(len(self._given) + len(self._places)):
            if place in self._places:
                args.append(getattr(self, f"weight_{place}"))
            else:
                value = next(rest)
                args.append(next(left) if isinstance(value, torch.Tensor) else value)
        return self.functional(*args)


def _exported(closed: _Closed) -> torch.export.ExportedProgram:
    try:
        return torch.export.export(closed, closed.example(), strict=False)
    except Exception as err:  # torch raises anything
        raise ModelError(f"the graph cannot be exported: {telling_line(err)}", value=err) from err


def _device(weights: Sequence[torch.Tensor], given: Sequence[Any]) -> str:
    tensors = [*weights, *(arg for arg in given if isinstance(arg, torch.Tensor))]
    devices = sorted({str(tensor.device) for tensor in tensors})
    if len(devices) > 1:
        raise ModelError(
            f"the graph's tensors are on {' and '.join(devices)}: put all of them on one device",
            value=devices,
        )
    if not tensors:
        return "cpu"
    device = tensors[0].device
    if device.index not in (None, 0):
        raise ModelError(
            f"the graph's tensors are on {device}; compiled code runs on {device.type}:0",
            value=str(device),
        )
    return str(device.type)


def _kind(arg: Any) -> Any:
    return (tuple(arg.shape), arg.dtype) if isinstance(arg, torch.Tensor) else arg


def _state(weight: torch.Tensor) -> tuple[int, ...]:
    """What changes with a tensor's values; one of inference mode counts no changes."""
    version = 0 if weight.is_inference() else weight._version
    return version, weight.data_ptr()
