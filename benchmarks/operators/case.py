"""One operator workload: a PyTorch module and what it is called on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Ids:
    """An input of integers from zero up to, without, ``high``."""

    shape: tuple[int, ...]
    high: int


@dataclass(frozen=True)
class Flags:
    """An input of booleans."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class BetweenIntegers:
    """An input of numbers up to ten or so, of either sign, a quarter or more from any integer.

    What has its poles there is not comparable right beside them: a step of the data type away it is
    another number, or none.
    """

    shape: tuple[int, ...]


Input = tuple[int, ...] | Ids | Flags | BetweenIntegers
"""A shape stands for normally distributed numbers of the data type that is measured."""


def shape_of(given: Input) -> tuple[int, ...]:
    """An input's shape."""
    return given.shape if isinstance(given, Ids | Flags | BetweenIntegers) else given


@dataclass(frozen=True)
class OperatorCase:
    """An operator as a network would hold it.

    Attributes
    ----------
    family : str
        What is like it, for the table.
    name : str
        Its own; with the family it names the case.
    make : callable
        The module, its weights from PyTorch's generator.
    inputs : tuple
        See :data:`Input`.
    flops : float
        Multiply-adds count two; zero where memory alone counts.
    places_along : int or None
        The axis of the input along which the second result has places of the first: of equal
        elements any place is right.
    """

    family: str
    name: str
    make: Callable[[], nn.Module]
    inputs: tuple[Input, ...]
    flops: float = 0.0
    places_along: int | None = None

    @property
    def key(self) -> str:
        return f"{self.family}/{self.name}"

    def build(self, seed: int, dtype: torch.dtype) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """The module in inference mode and its inputs, on the CPU.

        Parameters
        ----------
        seed : int
            Of weights and inputs.
        dtype : torch.dtype
            Of all that is not an integer.
        """
        torch.manual_seed(seed)
        module = self.make().to(dtype).eval()
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        return module, tuple(_input(given, dtype) for given in self.inputs)


def _input(given: Input, dtype: torch.dtype) -> Tensor:
    if isinstance(given, Ids):
        return torch.randint(0, given.high, given.shape)
    if isinstance(given, Flags):
        return torch.rand(given.shape) < 0.5
    if isinstance(given, BetweenIntegers):
        return (torch.floor(3 * torch.randn(given.shape)) + 0.25 + torch.rand(given.shape) / 2).to(
            dtype
        )
    return torch.randn(given).to(dtype)


class Call(nn.Module):
    """A function of PyTorch's as a module; tensors that it holds are constants.

    Parameters
    ----------
    function : callable
        Called with the inputs, then with the constants.
    constants : sequence of Tensor
        Weights and tables.
    """

    def __init__(self, function: Callable[..., Any], constants: Sequence[Tensor] = ()) -> None:
        super().__init__()
        self._function = function
        self._names = [f"constant{i}" for i in range(len(constants))]
        for name, tensor in zip(self._names, constants, strict=True):
            self.register_buffer(name, tensor)

    def forward(self, *inputs: Tensor) -> Any:
        return self._function(*inputs, *(getattr(self, name) for name in self._names))


def call(
    family: str,
    name: str,
    function: Callable[..., Any],
    *inputs: Input,
    flops: float = 0.0,
    places_along: int | None = None,
) -> OperatorCase:
    """A case that calls one of PyTorch's functions."""
    return OperatorCase(family, name, lambda: Call(function), inputs, flops, places_along)
