"""A traced graph, compiled for what it is called with: once for each set of shapes and weights."""

from __future__ import annotations

import shutil
import threading
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._dynamo.convert_frame import compile_lock
from torch.utils._python_dispatch import _disable_current_modes

from collage.backends.contract.errors import ModelError, UnmatchedError, telling_line
from collage.backends.storage import OwnFolder, scratch_parent
from collage.bundle import Bundle
from collage.bundle.calling.tensors import as_torch
from collage.dynamo.options import Options
from collage.pipeline.optimize import optimize
from collage.pipeline.results.result import Result

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


@dataclass(frozen=True)
class _Call:
    """A call of a graph.

    Attributes
    ----------
    functional : torch.fx.GraphModule
        The graph.
    places, weights
        The inputs that are compiled in, and where they stand.
    given : sequence
        All others, in their order.
    """

    functional: fx.GraphModule
    places: tuple[int, ...]
    weights: Sequence[torch.Tensor]
    given: Sequence[Any]

    @property
    def key(self) -> tuple[Any, ...]:
        """What it has to be compiled anew for."""
        return (self.places, tuple(map(id, self.weights)), *map(_kind, self.given))

    def device(self) -> str:
        """The kind of device that all of its tensors are on.

        Raises
        ------
        ModelError
            When they are not on one, or not on the first of its kind.
        """
        tensors = [*self.weights, *(arg for arg in self.given if isinstance(arg, torch.Tensor))]
        if not tensors:
            values = [node.meta.get("val") for node in self.functional.graph.nodes]
            tensors = [value for value in values if isinstance(value, torch.Tensor)]
        devices = {str(tensor.device): tensor.device for tensor in tensors}
        if len(devices) > 1:
            raise ModelError(
                f"the graph's tensors are on {' and '.join(sorted(devices))}: put all of them on "
                "one device",
                value=sorted(devices),
            )
        device = next(iter(devices.values()), torch.device("cpu"))
        if device.index not in (None, 0):
            raise ModelError(
                f"the graph's tensors are on {device}; compiled code runs on {device.type}:0",
                value=str(device),
            )
        return str(device.type)


class Graph:
    """A function of tensors without side effects, called as PyTorch calls what a backend returns.

    Parameters
    ----------
    functional : torch.fx.GraphModule
        From AOTAutograd.
    weights : sequence of int
        Places of the inputs that are a module's parameters and buffers, and that no call writes
        into: compiled in.
    options : Options
        Of the search.
    """

    def __init__(
        self, functional: fx.GraphModule, weights: Sequence[int], options: Options
    ) -> None:
        self._functional = functional
        self._weights = tuple(weights)
        self._options = options
        self._complex = _complex_results(functional)
        self._folder = OwnFolder(scratch_parent())
        self._compiled: OrderedDict[tuple[Any, ...], _Compiled] = OrderedDict()
        self._made = 0
        # Of what is compiled; calls themselves may come from any number of threads.
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Sequence[Any]:
        # A tensor of inference mode counts no changes: taken as it is in each call.
        places = [place for place in self._weights if not args[place].is_inference()]
        weights = [args[place] for place in places]
        given = [arg for place, arg in enumerate(args) if place not in places]
        compiled = self._for(_Call(self._functional, tuple(places), weights, given))
        main = compiled.bundle[compiled.bundle.main]
        tensors = [_parts(arg) for arg in given if isinstance(arg, torch.Tensor)]
        assert main.entry.signature is not None, "exported programs have one"
        # PyTorch's, where no input says so either.
        found: Sequence[Any] = main.entry.signature.returned(as_torch(main.results(tensors)))
        if not self._complex:
            return found
        return [
            torch.view_as_complex(result) if place in self._complex else result
            for place, result in enumerate(found)
        ]

    def _for(self, call: _Call) -> _Compiled:
        found = self._kept(call)
        if found is None:
            # PyTorch traces one function at a time, in this thread or another, and exporting is
            # tracing. Whatever it has under way where the call comes from, this is none of it.
            with (
                compile_lock,
                _disable_current_modes(),
                torch.inference_mode(False),
                torch.no_grad(),
            ):
                found = self._kept(call)
                if found is None:
                    found = self._compile(call)
                    self._keep(call, found)
        return found

    def _kept(self, call: _Call) -> _Compiled | None:
        with self._lock:
            found = self._compiled.get(call.key)
            if found is None:
                return None
            if not found.holds(call.weights):
                self._forget(call.key)
                return None
            self._compiled.move_to_end(call.key)
            return found

    def _keep(self, call: _Call, compiled: _Compiled) -> None:
        with self._lock:
            self._compiled[call.key] = compiled
            while len(self._compiled) > _MOST_KEPT:
                self._forget(next(iter(self._compiled)))

    def _compile(self, call: _Call) -> _Compiled:
        device = call.device()
        program = _exported(_Closed(call, self._complex))
        keywords = self._options.for_optimize(device)
        if keywords["log"] is None:
            # What other weights or shapes share is measured once.
            keywords["log"] = self._folder.path / "log.jsonl"
        result = _optimized(program, keywords)
        self._made += 1
        bundle = Bundle(result.export(self._folder.path / str(self._made)))
        return _Compiled(bundle, tuple((weight, _state(weight)) for weight in call.weights))

    def _forget(self, key: tuple[Any, ...]) -> None:
        shutil.rmtree(self._compiled.pop(key).bundle.folder, ignore_errors=True)


class _Closed(torch.nn.Module):
    """The graph with a call's weights and plain numbers in it, and only tensors to give.

    Bundles take and give no complex numbers: where PyTorch hands some over, between two graphs or
    to the program, they are pairs of their parts, which is the same memory.
    """

    def __init__(self, call: _Call, complex_results: frozenset[int]) -> None:
        super().__init__()
        self.functional = call.functional
        self._complex_results = complex_results
        self._places = call.places
        for place, weight in zip(call.places, call.weights, strict=True):
            self.register_buffer(f"weight_{place}", weight.detach())
        self._given = call.given

    def example(self) -> tuple[torch.Tensor, ...]:
        """The tensors of the call."""
        return tuple(_parts(_plain(arg)) for arg in self._given if isinstance(arg, torch.Tensor))

    def forward(self, *tensors: torch.Tensor) -> Any:
        rest, left = iter(self._given), iter(tensors)
        args = []
        for place in range(len(self._given) + len(self._places)):
            if place in self._places:
                args.append(getattr(self, f"weight_{place}"))
            else:
                value = next(rest)
                args.append(_whole(next(left), value) if isinstance(value, torch.Tensor) else value)
        results = self.functional(*args)
        if not self._complex_results:
            return results
        return tuple(
            _parts(result) if place in self._complex_results else result
            for place, result in enumerate(results)
        )


def _exported(closed: _Closed) -> torch.export.ExportedProgram:
    try:
        return torch.export.export(closed, closed.example(), strict=False)
    except Exception as err:  # torch raises anything
        raise ModelError(f"the graph cannot be exported: {telling_line(err)}", value=err) from err


def _optimized(program: torch.export.ExportedProgram, keywords: Mapping[str, Any]) -> Result:
    """What a model pins or bans need not be in each of its graphs, of which it has several."""
    wishes = {verb: dict(keywords[verb] or {}) for verb in ("pin", "ban")}
    while True:
        try:
            return optimize(program, **{**keywords, **wishes})
        except UnmatchedError as err:
            warnings.warn(f"{err}; this graph is compiled without it", stacklevel=2)
            wishes = {verb: _without(one, err.value) for verb, one in wishes.items()}


def _without(wishes: Mapping[str, Any], pattern: object) -> dict[str, Any]:
    return {key: value for key, value in wishes.items() if key != pattern}


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """One that can be traced: of inference mode it must not be."""
    return tensor.clone() if tensor.is_inference() else tensor.detach()


def _parts(tensor: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs of real ones, and others as they are."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _whole(parts: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(parts) if like.is_complex() else parts


def _complex_results(functional: fx.GraphModule) -> frozenset[int]:
    """Which of a graph's results are complex."""
    (results,) = functional.graph.output_node().args
    values = [result.meta.get("val") if isinstance(result, fx.Node) else None for result in results]
    return frozenset(
        place
        for place, value in enumerate(values)
        if isinstance(value, torch.Tensor) and value.is_complex()
    )


def _kind(arg: Any) -> Any:
    return (tuple(arg.shape), arg.dtype) if isinstance(arg, torch.Tensor) else arg


def _state(weight: torch.Tensor) -> tuple[int, ...]:
    """What changes with a tensor's values, but for writes through its ``data``."""
    return weight._version, weight.data_ptr()
