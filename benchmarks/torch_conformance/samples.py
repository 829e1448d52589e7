"""PyTorch's samples of its operators (``OpInfo``) and modules (``ModuleInfo``), as modules.

Every tensor of a sample is an input, everything else a constant. Operators whose results nobody
could compare are left out by name, the others by what they are seen to do, see ``trial``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

SAMPLES: Mapping[str, int] = {"float32": 3, "int64": 1, "bool": 1, "float16": 1}
"""How many samples of an operator of each element type, spread over those that there are."""

_SEED = 7

_LEFT_OUT = ("empty", "new_empty", "_segment", "sparse.", "masked.", "signal.", "__")
"""Beginnings of names: nothing written into memory, no public operator, or no tensor given."""


@dataclass(frozen=True)
class Case:
    """Which sample: ``operator:dtype:place``.

    Attributes
    ----------
    operator : str
        As PyTorch's lists have it, with its variant behind a point; a module with ``nn.`` and a
        capital.
    dtype : str
        The element type that the samples are asked for in.
    place : int
        Of the sample, counted from 0 among those taken.
    """

    operator: str
    dtype: str
    place: int

    def __str__(self) -> str:
        return f"{self.operator}:{self.dtype}:{self.place}"

    @classmethod
    def of(cls, name: str) -> Case:
        """The case of a name."""
        operator, dtype, place = name.rsplit(":", 2)
        return cls(operator, dtype, int(place))


class Sample(torch.nn.Module):
    """A call with all of its tensors as inputs.

    Parameters
    ----------
    function : callable
        A function, or a module that becomes a part of this one.
    args, kwargs
        What it is called with.
    """

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.function, self.options = function, dict(kwargs)
        leaves, self._structure = pytree.tree_flatten((tuple(args), dict(kwargs)))
        self._leaves = [None if _is_tensor(x) else x for x in leaves]
        self._places = [i for i, x in enumerate(leaves) if _is_tensor(x)]
        self.inputs = tuple(leaves[i].detach() for i in self._places)

    def forward(self, *inputs: torch.Tensor) -> Any:
        """What it gives for other tensors of these shapes."""
        leaves = list(self._leaves)
        for place, value in zip(self._places, inputs, strict=True):
            leaves[place] = value
        args, kwargs = pytree.tree_unflatten(leaves, self._structure)
        return self.function(*args, **kwargs)


def names(dtypes: Sequence[str]) -> list[str]:
    """Every case of these element types, those of one operator together."""
    found = []
    for operator, info in _operators().items():
        for dtype in dtypes:
            if getattr(torch, dtype) in info.dtypes:
                found += [str(Case(operator, dtype, i)) for i in range(SAMPLES[dtype])]
    for module in _modules() if "float32" in dtypes else ():
        found += [str(Case(module, "float32", i)) for i in range(SAMPLES["float32"])]
    return found


def sample(case: Case) -> Sample | None:
    """The call of a case; None where the operator has fewer samples."""
    calls = _calls(case.operator, case.dtype)
    count = min(SAMPLES[case.dtype], len(calls))
    if case.place >= count:
        return None
    # From the first to the last, evenly.
    return calls[case.place * (len(calls) - 1) // max(1, count - 1)]


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


@cache
def _operators() -> dict[str, Any]:
    named = {info.full_name: info for info in op_db}
    return {
        name: info
        for name, info in named.items()
        if not name.startswith(_LEFT_OUT) and not info.name.endswith("_")
    }


@cache
def _modules() -> dict[str, Any]:
    return {f"nn.{info.module_cls.__name__}": info for info in module_db}


@cache
def _calls(operator: str, dtype: str) -> list[Sample]:
    """All samples; only the last operator's are asked for again."""
    _calls.cache_clear()
    torch.manual_seed(_SEED)
    random.seed(_SEED)
    kind = getattr(torch, dtype)
    if operator in _operators():
        info = _operators()[operator]
        drawn = info.sample_inputs("cpu", kind)
        return [Sample(info.op, (one.input, *one.args), one.kwargs) for one in drawn]
    info = _modules()[operator]
    found = []
    asked = {"device": "cpu", "dtype": kind, "requires_grad": False, "training": False}
    for given in info.module_inputs_func(info, **asked):
        made = given.constructor_input
        module = info.module_cls(*made.args, **made.kwargs).eval().requires_grad_(False)
        call = given.forward_input
        found.append(Sample(module, call.args, call.kwargs))
    return found
