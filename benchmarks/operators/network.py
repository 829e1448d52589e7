"""The distinct operator workloads of a network, as PyTorch's exporter sees them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.operators.case import Ids, Input, OperatorCase, shape_of
from benchmarks.operators.grid import all_cases

_VIEWS = ("view", "reshape", "unsqueeze", "squeeze", "getitem", "alias", "detach", "expand")
"""Nothing is computed."""


def network_of(source: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A network and inputs for it.

    Parameters
    ----------
    source : str
        ``module:function``, which is called and gives a module and its inputs; or
        ``torchvision:name`` or ``timm:name``, on an image of 224 by 224 points.
    """
    import importlib

    place, _, name = source.partition(":")
    if place == "timm":
        import timm

        return timm.create_model(name, pretrained=False).eval(), (torch.randn(1, 3, 224, 224),)
    if place == "torchvision":
        import torchvision

        return torchvision.models.get_model(name).eval(), (torch.randn(1, 3, 224, 224),)
    module, inputs = getattr(importlib.import_module(place), name)()
    return module, inputs


@functools.cache
def network_cases(source: str) -> tuple[OperatorCase, ...]:
    """Each distinct operator of a network once, in the order of the program."""
    module, inputs = network_of(source)
    with torch.no_grad():
        program = torch.export.export(module, inputs)
    held = {spec.arg.name for spec in program.graph_signature.input_specs if spec.target}
    cases: dict[str, OperatorCase] = {}
    for node in program.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            name = node.target.overloadpacket.__name__
            if name not in _VIEWS:
                case = _case(name, node, held)
                cases.setdefault(case.key, case)
    return tuple(cases.values())


def find_case(key: str, source: str) -> OperatorCase:
    """The case of a key, out of the grid or of a network."""
    cases: Iterator[OperatorCase] = iter(network_cases(source) if source else all_cases())
    return next(case for case in cases if case.key == key)


def _case(name: str, node: Any, held: set[str]) -> OperatorCase:
    inputs: list[Input] = []
    constants: list[tuple[tuple[int, ...], torch.dtype]] = []

    def place(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            tensor = value.meta["val"]
            shape = tuple(int(extent) for extent in tensor.shape)
            if value.name in held:
                constants.append((shape, tensor.dtype))
                return _Constant(len(constants) - 1)
            integral = not tensor.dtype.is_floating_point
            inputs.append(Ids(shape, 2) if integral else shape)
            return _Input(len(inputs) - 1)
        if isinstance(value, list | tuple):
            return type(value)(place(item) for item in value)
        return value

    args = tuple(place(arg) for arg in node.args)
    kwargs = {key: place(value) for key, value in node.kwargs.items()}
    shapes = ", ".join("x".join(map(str, shape_of(given))) for given in inputs)
    rest = [a for a in args if not isinstance(a, _Input | _Constant)]
    weights = ", ".join("x".join(map(str, shape)) for shape, _ in constants)
    label = " ".join(str(part) for part in (shapes, weights, rest or "", kwargs or "") if part)
    make = functools.partial(_Operator, node.target, args, kwargs, tuple(constants))
    return OperatorCase(name, label, make, tuple(inputs))


class _Place(int):
    """Which tensor stands here."""


class _Input(_Place):
    pass


class _Constant(_Place):
    pass


class _Operator(nn.Module):
    """One operator of a program, its weights random."""

    def __init__(self, target: Any, args: Any, kwargs: Any, constants: Any) -> None:
        super().__init__()
        self._target, self._args, self._kwargs = target, args, kwargs
        self._count = len(constants)
        for index, (shape, dtype) in enumerate(constants):
            # Positive, for among them may be variances.
            values = torch.rand(shape) + 0.5 if dtype.is_floating_point else torch.zeros(shape)
            self.register_buffer(f"constant{index}", values.to(dtype))

    def forward(self, *inputs: Tensor) -> Any:
        def filled(value: Any) -> Any:
            if isinstance(value, _Input):
                return inputs[value]
            if isinstance(value, _Constant):
                return getattr(self, f"constant{int(value)}")
            if isinstance(value, list | tuple):
                return type(value)(filled(item) for item in value)
            return value

        kwargs = {key: filled(value) for key, value in self._kwargs.items()}
        return self._target(*(filled(arg) for arg in self._args), **kwargs)
