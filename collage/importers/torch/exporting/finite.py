"""Modules that look whether numbers overflowed, and do something else where they did.

Many a transformer in half precision clamps what is infinite: ``if torch.isinf(x).any()``, or
``if not torch.isfinite(x).all()``. What runs depends on what tensors hold then, which nobody knows
who traces it. It is traced as it runs while all numbers are finite.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar, cast

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

_Value = TypeVar("_Value")

_OF_FINITE = {
    "isinf": False,
    "isnan": False,
    "isposinf": False,
    "isneginf": False,
    "isfinite": True,
}
"""What functions say of each number that is finite."""

_SAME = frozenset(("any", "all", "clone", "detach", "to", "bool", "cpu", "max", "amax"))
_BOTH: Mapping[str, Callable[[bool, bool], bool]] = {
    "logical_or": lambda a, b: a or b,
    "logical_and": lambda a, b: a and b,
    "bitwise_or": lambda a, b: a or b,
    "bitwise_and": lambda a, b: a and b,
    "__or__": lambda a, b: a or b,
    "__and__": lambda a, b: a and b,
}
_NEGATED = frozenset(("logical_not", "bitwise_not", "__invert__"))
_COUNTED = frozenset(("sum", "count_nonzero"))
_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    name: getattr(operator, name) for name in ("gt", "lt", "ge", "le", "eq", "ne")
}


@contextmanager
def taken_for_finite(
    module: Any, changed: Callable[[Any], AbstractContextManager[None]]
) -> Iterator[None]:
    """Whether there are infinities, or no numbers, is answered with no as long as this lasts.

    Parameters
    ----------
    module : torch.nn.Module
        Which asks.
    changed : callable
        What else becomes of it meanwhile.

    Yields
    ------
    None
        Meanwhile; afterwards a warning says so if the module asked.

    Examples
    --------
    >>> def clamped(x):
    ...     return x.clamp(-6e4, 6e4) if torch.isinf(x).any() else x
    >>> from contextlib import nullcontext
    >>> with warnings.catch_warnings(record=True) as said, taken_for_finite(None, nullcontext):
    ...     clamped(torch.full((2,), torch.inf))
    tensor([inf, inf])
    >>> str(said[0].message)
    "what is done where numbers overflow is left out: ..."
    """
    asking = _Asking()
    with changed(module), asking, _truth_of_tensors(asking):
        yield
    if asking.was_asked:
        warnings.warn(
            "what is done where numbers overflow is left out: the network asks for infinities and "
            "NaNs as it runs, and is compiled as it runs without any",
            stacklevel=4,
        )


def is_undecided(error: Exception | None) -> bool:
    """Whether something could not be traced because what runs depends on what tensors hold.

    Parameters
    ----------
    error : Exception or None
        Of ``torch.export``.

    Returns
    -------
    bool
        True for that error alone.
    """
    return isinstance(error, GuardOnDataDependentSymNode)


class _Asking(TorchFunctionMode):
    """Follows what is known of tensors of truth values where all numbers are finite."""

    def __init__(self) -> None:
        super().__init__()
        self._known = WeakTensorKeyDictionary()
        self.was_asked = False

    def truth(self, tensor: Any) -> bool | None:
        """What a tensor holds; None where that depends on more."""
        known = cast("bool | None", self._known.get(tensor))
        self.was_asked |= known is not None
        return known

    def __torch_function__(
        self,
        func: Callable[..., _Value],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> _Value:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        operands = [one for one in args if isinstance(one, torch.Tensor)]
        if name == "item" and operands and (known := self.truth(operands[0])) is not None:
            return cast("_Value", known)
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor):
            value = _OF_FINITE.get(name, self._follow(name, operands, args))
            if value is not None:
                self._known[result] = value
        return result

    def _follow(self, name: str, operands: list[Any], args: tuple[Any, ...]) -> bool | None:
        known = [self._known.get(one) for one in operands]
        if not known or any(one is None for one in known):
            return None
        if name in _SAME:
            return cast("bool", known[0])
        if name in _NEGATED:
            return not known[0]
        if name in _BOTH and len(known) == 2:
            return _BOTH[name](*cast("list[bool]", known))
        if name in _COUNTED and known[0] is False:
            return False  # None of them is one.
        compared = _COMPARED.get(name.strip("_"))
        if compared is not None and len(args) == 2 and isinstance(args[1], bool | int | float):
            return compared(known[0], args[1])
        return None


@contextmanager
def _truth_of_tensors(asking: _Asking) -> Iterator[None]:
    """What Python branches on: no mode is told of that."""
    own = torch.Tensor.__bool__

    def truth(tensor: Any) -> bool:
        known = asking.truth(tensor)
        return own(tensor) if known is None else known

    torch.Tensor.__bool__ = truth
    try:
        yield
    finally:
        torch.Tensor.__bool__ = own
