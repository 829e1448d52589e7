"""What tensors depend on while a module is traced, and what they hold where that is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_unbacked_symbols
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

_MOST = 1 << 12
"""Numbers of an input that may decide; a tensor of more is data."""

_LARGEST = 1 << 20
"""Numbers of a tensor that is computed here and written down."""

_MADE = frozenset(
    ("tensor", "as_tensor", "arange", "linspace", "logspace", "zeros", "ones", "full", "eye")
)
_FILLED = frozenset(("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"))
"""What has the shape or the type of a tensor, and holds nothing of it."""
_DRAWN = frozenset(("dropout", "bernoulli", "multinomial", "normal", "poisson"))
_SIZED = frozenset(("interpolate", "upsample", "pad"))
_SLOTS = ("__bool__", "__int__", "__index__", "__float__")
"""What Python asks of tensors without telling a mode."""


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """The tensors in what is nested.

    Examples
    --------
    >>> len(tensors_of({"a": torch.zeros(1), "b": [2, torch.zeros(3)]}))
    2
    """
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def may_decide(tensor: torch.Tensor) -> bool:
    """Whether shapes may follow from what a tensor holds.

    Examples
    --------
    >>> may_decide(torch.tensor([1, 4, 4])), may_decide(torch.zeros(3))
    (True, False)
    """
    whole = not tensor.is_floating_point() and not tensor.is_complex()
    return whole and 0 < tensor.numel() <= _MOST


class Following(TorchFunctionMode):
    """Follows which inputs tensors depend on, and what they hold where that is known.

    Examples
    --------
    >>> with Following() as following:
    ...     known = following.written_down(torch.tensor([1, 2]))
    ...     following.value(known.sum() + 4)
    tensor(7)
    """

    def __init__(self) -> None:
        super().__init__()
        self._values = WeakTensorKeyDictionary()
        self._sources = WeakTensorKeyDictionary()
        self._of_symbols: dict[Any, frozenset[int | None]] = {}
        # Memory of values, kept so that its address stands for it, and what of it is known no more.
        self._memory: dict[int, torch.Tensor] = {}
        self._lost: set[int] = set()

    def begins_with(self, tensor: torch.Tensor, source: int | None) -> None:
        """An input, as it is traced.

        Parameters
        ----------
        tensor : torch.Tensor
            Of which nothing is known yet.
        source : int or None
            Which one; None stands for all that cannot be known.
        """
        self._sources[tensor] = frozenset((source,))

    def written_down(self, value: torch.Tensor) -> torch.Tensor:
        """A constant of the program that is traced, with this in it."""
        with _really():
            numbers = value.tolist()
        made = torch.tensor(numbers, dtype=value.dtype).reshape(value.shape)
        self._keep(made, value)
        return made

    def sources_of(self, symbols: Iterable[Any]) -> frozenset[int | None]:
        """The inputs that these depend on."""
        found = [self._of_symbols[one] for one in symbols if one in self._of_symbols]
        return frozenset().union(*found)

    def value(self, tensor: Any) -> torch.Tensor | None:
        """What a tensor holds; None where that is not known."""
        found: torch.Tensor | None = self._values.get(tensor)
        return None if found is None or _address(found) in self._lost else found

    def _keep(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        self._values[tensor] = value
        self._memory.setdefault(_address(value), value)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        leaves = pytree.tree_leaves((args, kwargs))
        tensors = [one for one in leaves if isinstance(one, torch.Tensor)]
        if name in _FILLED and len(tensors) == 1 and tensors[0] is args[0]:
            filled = _filled(func, args, kwargs)
            if filled is not None:
                return self.written_down(filled)
        values = [self.value(one) for one in tensors]
        writes = _writes(func, name, kwargs)
        known = all(value is not None for value in values)
        if known and (values or name in _MADE) and _is_computed(name, leaves):
            computed = self._computed(func, args, kwargs)
            if computed is not None:
                as_is = writes or not values
                return self._given(computed[0], func, args, kwargs, as_is=as_is)
        elif writes and values and values[0] is not None:
            self._lost.add(_address(values[0]))
        func, args, kwargs = self._by_numbers(func, name, args, kwargs)
        # How often is asked last: what is repeated does not decide how much there is of it.
        deciding = tensors[-1:] if name == "repeat_interleave" else leaves
        return self.traced(leaves, lambda: func(*args, **kwargs), deciding)

    def traced(
        self, operands: list[Any], call: Callable[[], Any], deciding: list[Any] | None = None
    ) -> Any:
        """What a call gives, of which it is noted what that depends on; or why there is nothing.

        Parameters
        ----------
        operands : list
            What the result depends on.
        call : callable
            Traced.
        deciding : list, optional
            Those of which the result's extents depend, where that is not all.

        Returns
        -------
        object
            The result.
        """
        sources = frozenset().union(*map(self._depends, operands))
        of_extents = sources
        if deciding is not None:
            of_extents = frozenset().union(*map(self._depends, deciding))
        try:
            result = call()
        except GuardOnDataDependentSymNode as err:
            for symbol in getattr(err.cond, "free_symbols", ()):
                self._of_symbols.setdefault(symbol, sources)
            raise
        for one in pytree.tree_leaves(result) if sources else ():
            if isinstance(one, torch.Tensor):
                self._sources[one] = sources | self._sources.get(one, frozenset())
            for symbol in unbacked_symbols(one):
                self._of_symbols.setdefault(symbol, of_extents)
        return result

    def _computed(
        self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any] | None:
        """What a function gives for known operands; None where it does not take them."""

        def real(leaf: Any) -> Any:
            return self.value(leaf) if isinstance(leaf, torch.Tensor) else leaf

        args, kwargs = pytree.tree_map(real, (args, kwargs))
        try:
            with _really():
                return (func(*args, **kwargs),)
        except Exception:  # noqa: BLE001 - then it is traced, and that says what is wrong
            return None

    def _given(
        self, result: Any, func: Callable[..., Any], args: Any, kwargs: Any, *, as_is: bool
    ) -> Any:
        """The result of known operands: traced where it shares their memory, else written down."""
        tensors = tensors_of(result)
        if not tensors:
            return func(*args, **kwargs) if as_is else result
        shared = any(_address(one) in self._memory for one in tensors)
        if as_is or shared or any(one.numel() > _LARGEST for one in tensors):
            traced = func(*args, **kwargs)
            for one, value in zip(tensors_of(traced), tensors, strict=True):
                self._keep(one, value)
            return traced
        return pytree.tree_map_only(torch.Tensor, self.written_down, result)

    def _by_numbers(
        self, func: Callable[..., Any], name: str, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Callable[..., Any], Any, dict[str, Any]]:
        """Rows by their numbers, where a mask that is known chooses them, or repeats that are; and
        sizes that are known as numbers, where PyTorch computes with them in Python."""
        if name in _SIZED:
            args, kwargs = pytree.tree_map(self._number, (args, kwargs))
        if name in ("__getitem__", "__setitem__") and len(args) > 1:
            chosen = args[1] if isinstance(args[1], tuple) else (args[1],)
            places = [place for one in chosen for place in self._places(one)]
            if [id(one) for one in places] != [id(one) for one in chosen]:
                return func, (args[0], tuple(places), *args[2:]), kwargs
        elif name == "repeat_interleave" and len(args) > 1 and not kwargs.keys() - {"dim"}:
            repeats = self.value(args[1]) if isinstance(args[1], torch.Tensor) else None
            dim = kwargs.get("dim", args[2] if len(args) > 2 else None)
            tensor = args[0].flatten() if dim is None else args[0]
            if repeats is not None and repeats.dim():
                with _really():
                    rows = torch.arange(len(repeats)).repeat_interleave(repeats)
                if len(repeats) == tensor.shape[dim or 0]:
                    return torch.index_select, (tensor, dim or 0, self.written_down(rows)), {}
        return func, args, kwargs

    def _number(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dim() or not may_decide(leaf):
            return leaf
        value = self.value(leaf)
        if value is None:
            return self.traced([leaf], leaf.item)
        with _really():
            return int(value)

    def _places(self, index: Any) -> Sequence[Any]:
        value = self.value(index) if isinstance(index, torch.Tensor) else None
        if value is None or value.dtype is not torch.bool:
            return (index,)
        with _really():
            found = value.nonzero(as_tuple=True)
        return [self.written_down(one) for one in found]

    def _depends(self, operand: Any) -> frozenset[int | None]:
        found: frozenset[int | None] = frozenset()
        if isinstance(operand, torch.Tensor):
            found = self._sources.get(operand, found)
        return found.union(*(self._of_symbols.get(one, ()) for one in unbacked_symbols(operand)))


@contextmanager
def _really() -> Iterator[None]:
    """What is computed within is not traced."""
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
        yield


def _filled(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.Tensor | None:
    """What is filled with one number, for shapes that are known and whole numbers that are few."""
    shape = tuple(args[0].shape)
    if not may_decide(args[0]) or not _is_computed("", pytree.tree_leaves((shape, args, kwargs))):
        return None
    with _really():
        found: torch.Tensor = func(torch.empty(shape, dtype=args[0].dtype), *args[1:], **kwargs)
    return found if may_decide(found) else None


def _address(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        return int(tensor.untyped_storage()._cdata)


def _writes(func: Callable[..., Any], name: str, kwargs: Mapping[str, Any]) -> bool:
    own = name.endswith("_") and not name.endswith("__")
    augmented = name.startswith("__i") and name not in ("__index__", "__invert__", "__int__")
    return own or augmented or name == "__setitem__" or kwargs.get("out") is not None


def _is_computed(name: str, leaves: list[Any]) -> bool:
    """Whether a function gives the same whenever it is called, and takes nothing symbolic."""
    if name.startswith("rand") or name.rstrip("_") in _DRAWN:
        return False
    return not any(isinstance(one, torch.SymInt | torch.SymFloat | torch.SymBool) for one in leaves)


def unbacked_symbols(value: Any) -> set[Any]:
    """What stands for numbers that are in tensors, in an extent of a tensor or in a number.

    Examples
    --------
    >>> unbacked_symbols(torch.zeros(3)), unbacked_symbols(7)
    (set(), set())
    """
    if isinstance(value, torch.Tensor):
        shape = [extent for extent in value.shape if isinstance(extent, torch.SymInt)]
        return set(free_unbacked_symbols(shape)) if shape else set()
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return set(free_unbacked_symbols(value))
    return set()


@contextmanager
def asked(following: Following) -> Iterator[None]:
    """What Python asks of a tensor is answered with what that holds, where it is known.

    Parameters
    ----------
    following : Following
        Knows it.

    Examples
    --------
    >>> following = Following()
    >>> with following, asked(following):
    ...     int(torch.tensor(3))
    3
    """
    with ExitStack() as stack:
        for slot in _SLOTS:
            own = getattr(torch.Tensor, slot)
            stack.callback(setattr, torch.Tensor, slot, own)
            setattr(torch.Tensor, slot, _answering(following, own))
        yield


def _answering(following: Following, own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def answer(tensor: Any) -> Any:
        value = following.value(tensor)
        if value is None:
            return following.traced([tensor], lambda: own(tensor))
        with _really():
            return own(value)

    return answer
