"""Modules whose integers decide what runs: how many pieces a picture is cut into, and how long.

``torch.export`` takes an input for a tensor whose numbers it does not know, and refuses a program
whose shapes follow from them. Which inputs these are shows where it fails; the numbers that the
examples have there are then known while it traces, and followed through whatever is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_unbacked_symbols
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

from collage.importers.torch.exporting.caches import plain_caches
from collage.importers.torch.exporting.forward import replaced_forward
from collage.structure import FixedTensor

_MOST = 1 << 12
"""Numbers of an input that may decide; a tensor of more is data."""

_LARGEST = 1 << 20
"""Numbers of a tensor that is computed here and written down."""

_MADE = frozenset(("tensor", "as_tensor", "arange", "zeros", "ones", "full", "eye"))
_DRAWN = frozenset(("dropout", "bernoulli", "multinomial", "normal", "poisson"))
_SLOTS = ("__bool__", "__int__", "__index__", "__float__")
"""What Python asks of tensors without telling a mode."""


class Decided:
    """What is known of a module's inputs, by one attempt after the other.

    Parameters
    ----------
    args, kwargs
        What the module is called with.

    Examples
    --------
    >>> class Longer(torch.nn.Module):
    ...     def forward(self, x, sizes):
    ...         return x.repeat(2) if sizes.sum() > 4 else x
    >>> net, call = Longer(), (torch.ones(5), torch.tensor([2, 3]))
    >>> decided = Decided(call, {})
    >>> for _ in range(2):
    ...     try:
    ...         with decided.followed(net):
    ...             program = torch.export.export(net, call)
    ...     except GuardOnDataDependentSymNode as err:
    ...         print(decided.learns(err))
    True
    >>> decided.fixed()
    (FixedTensor(input=1, values=(2, 3)),)
    """

    def __init__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._given = _tensors((args, dict(kwargs)))
        self._known: set[int] = set()
        self._following: _Following | None = None

    def learns(self, error: Exception | None) -> bool:
        """Whether an attempt failed for numbers of inputs that the next one may know.

        Parameters
        ----------
        error : Exception or None
            Of ``torch.export``.

        Returns
        -------
        bool
            False as well where other things decide: computed numbers that are no integers, or too
            many.
        """
        following, self._following = self._following, None
        if following is None or not isinstance(error, GuardOnDataDependentSymNode):
            return False
        sources = following.sources_of(getattr(error, "cond", None))
        new = {source for source in sources if source is not None} - self._known
        if None in sources or not new or not all(_may_decide(self._given[i]) for i in new):
            return False
        self._known |= new
        return True

    @contextmanager
    def followed(
        self,
        module: Any,
        changed: Callable[[Any], AbstractContextManager[None]] = plain_caches,
    ) -> Iterator[None]:
        """A module whose inputs are known as far as was learned, and afterwards as it was.

        Parameters
        ----------
        module : torch.nn.Module
            That is exported meanwhile.
        changed : callable
            What else becomes of it.

        Yields
        ------
        None
            Meanwhile.
        """
        following = self._following = _Following()
        with changed(module):
            forward = module.forward

            def run(*args: Any, **kwargs: Any) -> Any:
                leaves, spec = pytree.tree_flatten((args, kwargs))
                tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
                for number, place in enumerate(tensors):
                    if number in self._known:
                        leaves[place] = following.written_down(self._given[number])
                    else:
                        decides = _may_decide(self._given[number])
                        following.begins_with(leaves[place], number if decides else None)
                args, kwargs = pytree.tree_unflatten(leaves, spec)
                with following, _asked(following):
                    return forward(*args, **kwargs)

            with replaced_forward(module, run):
                yield

    def fixed(self) -> tuple[FixedTensor, ...]:
        """The inputs that are known, with their numbers."""
        return tuple(
            FixedTensor(number, tuple(int(one) for one in self._given[number].flatten().tolist()))
            for number in sorted(self._known)
        )


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _may_decide(tensor: torch.Tensor) -> bool:
    whole = not tensor.is_floating_point() and not tensor.is_complex()
    return whole and 0 < tensor.numel() <= _MOST


class _Following(TorchFunctionMode):
    """Follows which inputs tensors depend on, and what they hold where that is known."""

    def __init__(self) -> None:
        super().__init__()
        self._values = WeakTensorKeyDictionary()
        self._sources = WeakTensorKeyDictionary()
        self._of_symbols: dict[Any, frozenset[int | None]] = {}
        # Memory of values, kept so that its address stands for it, and what of it is known no more.
        self._memory: dict[int, torch.Tensor] = {}
        self._lost: set[int] = set()

    def begins_with(self, tensor: torch.Tensor, source: int | None) -> None:
        """An input; None stands for all that cannot be known."""
        self._sources[tensor] = frozenset((source,))

    def written_down(self, value: torch.Tensor) -> torch.Tensor:
        """A constant of the program that is traced, with this in it."""
        with _really():
            numbers = value.tolist()
        made = torch.tensor(numbers, dtype=value.dtype).reshape(value.shape)
        self._keep(made, value)
        return made

    def sources_of(self, condition: Any) -> frozenset[int | None]:
        """The inputs that what was asked depends on."""
        symbols: set[Any] = getattr(condition, "free_symbols", set())
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
        return self.traced(leaves, lambda: func(*args, **kwargs))

    def traced(self, operands: list[Any], call: Callable[[], Any]) -> Any:
        """What a call gives, of which it is noted what that depends on; or why there is nothing."""
        sources = frozenset().union(*(self._depends(one) for one in operands))
        try:
            result = call()
        except GuardOnDataDependentSymNode as err:
            for symbol in getattr(err.cond, "free_symbols", ()):
                self._of_symbols.setdefault(symbol, sources)
            raise
        for one in pytree.tree_leaves(result) if sources else ():
            if isinstance(one, torch.Tensor):
                self._sources[one] = sources | self._sources.get(one, frozenset())
            for symbol in _symbols(one):
                self._of_symbols.setdefault(symbol, sources)
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
        tensors = _tensors(result)
        if not tensors:
            return func(*args, **kwargs) if as_is else result
        shared = any(_address(one) in self._memory for one in tensors)
        if as_is or shared or any(one.numel() > _LARGEST for one in tensors):
            traced = func(*args, **kwargs)
            for one, value in zip(_tensors(traced), tensors, strict=True):
                self._keep(one, value)
            return traced
        return pytree.tree_map_only(torch.Tensor, self.written_down, result)

    def _by_numbers(
        self, func: Callable[..., Any], name: str, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Callable[..., Any], Any, dict[str, Any]]:
        """Rows by their numbers, where a mask that is known chooses them, or repeats that are."""
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
        return found.union(*(self._of_symbols.get(one, ()) for one in _symbols(operand)))


@contextmanager
def _really() -> Iterator[None]:
    """What is computed within is not traced."""
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
        yield


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


def _symbols(value: Any) -> set[Any]:
    if isinstance(value, torch.Tensor):
        shape = [extent for extent in value.shape if isinstance(extent, torch.SymInt)]
        return set(free_unbacked_symbols(shape)) if shape else set()
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return set(free_unbacked_symbols(value))
    return set()


@contextmanager
def _asked(following: _Following) -> Iterator[None]:
    """What Python asks of a tensor: what it holds where that is known."""
    with ExitStack() as stack:
        for slot in _SLOTS:
            own = getattr(torch.Tensor, slot)
            stack.callback(setattr, torch.Tensor, slot, own)
            setattr(torch.Tensor, slot, _answering(following, own))
        yield


def _answering(following: _Following, own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def answer(tensor: Any) -> Any:
        value = following.value(tensor)
        if value is None:
            return following.traced([tensor], lambda: own(tensor))
        with _really():
            return own(value)

    return answer
