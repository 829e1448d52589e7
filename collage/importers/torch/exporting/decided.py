"""Modules whose integers decide what runs: how many pieces a picture is cut into, and how long.

``torch.export`` takes an input for a tensor whose numbers it does not know, and refuses a program
whose shapes follow from them. Which inputs these are shows where it fails; the numbers that the
examples have there are then known while it traces, and followed through whatever is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from collage.importers.torch.exporting.caches import plain_caches
from collage.importers.torch.exporting.followed import (
    Following,
    asked,
    may_decide,
    tensors_of,
    unbacked_symbols,
)
from collage.importers.torch.exporting.forward import replaced_forward
from collage.structure import FixedTensor

_READ = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)


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
        self._given = tensors_of((args, dict(kwargs)))
        self._known: set[int] = set()
        self._following: Following | None = None

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
        return self._learns(following.sources_of(getattr(error.cond, "free_symbols", ())))

    def learns_sizes(self, numbers: Set[Any]) -> bool:
        """As :meth:`learns`, of an attempt that came to its end.

        Parameters
        ----------
        numbers : set of sympy.Symbol
            What extents of its tensors are, see :func:`numbers_as_sizes`.

        Returns
        -------
        bool
            Whether the next attempt will know some of them.
        """
        following, self._following = self._following, None
        return following is not None and self._learns(following.sources_of(numbers))

    def _learns(self, sources: frozenset[int | None]) -> bool:
        new = {source for source in sources if source is not None} - self._known
        if None in sources or not new or not all(may_decide(self._given[i]) for i in new):
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
        following = self._following = Following()
        with changed(module):
            forward = module.forward

            def run(*args: Any, **kwargs: Any) -> Any:
                leaves, spec = pytree.tree_flatten((args, kwargs))
                tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
                for number, place in enumerate(tensors):
                    if number in self._known:
                        leaves[place] = following.written_down(self._given[number])
                    else:
                        decides = may_decide(self._given[number])
                        following.begins_with(leaves[place], number if decides else None)
                args, kwargs = pytree.tree_unflatten(leaves, spec)
                with following, asked(following):
                    return forward(*args, **kwargs)

            with replaced_forward(module, run):
                yield

    def fixed(self) -> tuple[FixedTensor, ...]:
        """The inputs that are known, with their numbers."""
        return tuple(
            FixedTensor(number, tuple(int(one) for one in self._given[number].flatten().tolist()))
            for number in sorted(self._known)
        )


def numbers_as_sizes(program: Any) -> set[Any]:
    """Numbers read from tensors that are extents of other tensors, or that these follow from.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        With what could be told of its tensors.

    Returns
    -------
    set of sympy.Symbol
        As it calls them; empty of nearly all programs.
    """
    read: set[Any] = set()
    extents: set[Any] = set()
    repeated: set[Any] = set()
    for node in program.graph.nodes:
        new = _symbols_of(node) - _symbols_of(*node.all_input_nodes)
        if node.target in _READ:
            read |= new
        elif new:
            # How long a slice is: a number of its own, which follows from where it ends.
            extents |= _symbols_of(*(one for one in node.all_input_nodes if _is_number(one)))
        if getattr(node.target, "overloadpacket", None) is torch.ops.aten.repeat_interleave:
            repeated |= new
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor):
                extents |= unbacked_symbols(value)
    return (read & extents) | repeated


def _symbols_of(*nodes: Any) -> set[Any]:
    """What stands for numbers in tensors, in what nodes give."""
    values = pytree.tree_leaves([node.meta.get("val") for node in nodes])
    return set().union(*map(unbacked_symbols, values))


def _is_number(node: Any) -> bool:
    return isinstance(node.meta.get("val"), torch.SymInt)
