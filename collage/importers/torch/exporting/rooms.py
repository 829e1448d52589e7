"""Modules that go on with rows of which the data say how many there are, traced with room for all.

``torch.export`` knows nothing of how many there are, and refuses whatever asks for that:
``min(1000, len(found))``, ``if found.numel() == 0``, a loop over those experts that are asked. Here
there are as many as there can be, as far as Python is told. Which of them are meant is followed in
the program, see :mod:`collage.importers.torch.absorbed`.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from collage.importers.torch.distinct import distinct_ones, is_known
from collage.importers.torch.exporting.forward import replaced_forward
from collage.importers.torch.places import (
    Room,
    all_of_them,
    chosen_places,
    none_of_them,
    other_room,
)

aten = torch.ops.aten

_log = logging.getLogger(__name__)

_SAME_PLACES = frozenset(
    ["flatten", "squeeze", "view", "reshape", "to", "tolist", "cpu", "clone", "detach", "long"]
)
"""What leaves places as they are, in their order."""


@contextmanager
def with_room(
    module: Any, changed: Callable[[Any], AbstractContextManager[None]], room: Room = all_of_them
) -> Iterator[None]:
    """A module whose masks hold everywhere, as far as shapes tell, as long as this lasts.

    Parameters
    ----------
    module : torch.nn.Module
        That is exported meanwhile.
    changed : callable
        What else becomes of it.
    room : callable
        How much there is: other rooms tell what follows from how many rows there may be.

    Yields
    ------
    None
        Meanwhile.
    """
    with changed(module), ExitStack() as stack:
        forward = module.forward

        def run(*args: Any, **kwargs: Any) -> Any:
            with _WithRoom(room):
                return forward(*args, **kwargs)

        stack.enter_context(replaced_forward(module, run))
        _suppress_all_classes_at_once(stack)
        yield


def with_other_rooms(
    export: Callable[[], Any], changed: Callable[..., AbstractContextManager[None]]
) -> tuple[Any, Any]:
    """The programs that a module is with other room than for all rows.

    Parameters
    ----------
    export : callable
        Gives the module's program.
    changed : callable
        Lets the module have the room that it is given, meanwhile.

    Returns
    -------
    tuple of (torch.export.ExportedProgram, torch.export.ExportedProgram or None)
        With room for few rows, and for none: that one where it can be traced so.
    """
    with changed(room=other_room):
        roomier = export()
    try:
        with changed(room=none_of_them):
            return roomier, export()
    except Exception as err:  # noqa: BLE001 - torch raises anything; what is seen is enough then
        _log.debug("not traced with room for no rows: %s", err)
        return roomier, None


def _suppress_all_classes_at_once(stack: ExitStack) -> None:
    """torchvision goes from class to class where there are many boxes; both ways choose alike."""
    boxes: Any = sys.modules.get("torchvision.ops.boxes")
    if boxes is not None:
        own = boxes._batched_nms_vanilla
        stack.callback(setattr, boxes, "_batched_nms_vanilla", own)
        boxes._batched_nms_vanilla = boxes._batched_nms_coordinate_trick


class _WithRoom(TorchFunctionMode):
    """Lets what chooses rows give as many as there may be."""

    def __init__(self, room: Room) -> None:
        super().__init__()
        self._room = room
        self._rooms: dict[int, int] = {}
        # Masks of one axis, by the places where they hold; a loop's places, by their tensors; and
        # masks that hold in its body.
        self._masks = WeakTensorKeyDictionary()
        self._numbers = WeakTensorKeyDictionary()
        self._within: list[torch.Tensor] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        own = self._functions().get(name)
        if own is not None and args and isinstance(args[0], torch.Tensor):
            found = own(*args, **kwargs)
            if found is not NotImplemented:
                return found
        result = func(*args, **kwargs)
        if name in _SAME_PLACES or name == "__getitem__":
            self._keep_places(args[0], result)
        return result

    def _functions(self) -> dict[str, Callable[..., Any]]:
        return {
            "nonzero": self._nonzero,
            "argwhere": self._places,
            "where": self._where,
            "masked_select": self._selected,
            "__getitem__": self._taken,
            "__setitem__": self._written,
            "index.Tensor": self._indexed,
            "unbind": self._one_by_one,
            "unique": self._unique,
            "nms": self._suppressed,
            "__format__": self._told,
        }

    def _places(self, x: torch.Tensor) -> torch.Tensor:
        if not is_known(x):
            return NotImplemented
        mask = x if x.dtype == torch.bool else x != 0
        known = mask
        for one in self._within:
            mask = mask & one
        # Masks of one size may be one mask, computed twice.
        number = self._rooms.setdefault(mask.numel(), len(self._rooms))
        found = chosen_places(mask, self._room(mask, number))
        if mask.dim() == 1:
            self._masks[found] = known
        return found

    def _columns(self, x: torch.Tensor) -> Any:
        found = self._places(x)
        if found is NotImplemented:
            return NotImplemented
        columns: tuple[torch.Tensor, ...] = tuple(found[:, axis] for axis in range(x.dim()))
        if x.dim() == 1:
            self._keep_places(found, columns[0])
        return columns

    def _keep_places(self, source: Any, result: Any) -> None:
        if isinstance(source, torch.Tensor) and (number := self._numbers.get(source)) is not None:
            self._numbers[result] = number
        mask = self._masks.get(source) if isinstance(source, torch.Tensor) else None
        same = isinstance(result, torch.Tensor) and mask is not None
        if same and result.dim() in (1, 2) and result.numel() == source.shape[0]:
            self._masks[result] = mask

    def _nonzero(self, x: torch.Tensor, *, as_tuple: bool = False) -> Any:
        return self._columns(x) if as_tuple else self._places(x)

    def _where(self, condition: torch.Tensor, *others: Any, **named: Any) -> Any:
        return NotImplemented if others or named else self._columns(condition)

    def _selected(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x, mask = torch.broadcast_tensors(x, mask)
        columns = self._columns(mask.reshape(-1))
        return NotImplemented if columns is NotImplemented else x.reshape(-1)[columns[0]]

    def _numbered(self, index: Any) -> tuple[Any, ...] | None:
        """An index with places in the place of its one mask; None where it has none, or several."""
        parts = index if isinstance(index, tuple) else (index,)
        masks = [one for one in parts if _is_mask(one)]
        if len(masks) != 1:
            return None
        columns = self._columns(masks[0])
        if columns is NotImplemented:
            return None
        found: list[Any] = []
        for one in parts:
            found += columns if one is masks[0] else [one]
        return tuple(found)

    def _taken(self, x: torch.Tensor, index: Any) -> Any:
        first = index[0] if isinstance(index, tuple) and index else index
        if isinstance(first, slice) and first.start in (None, 0) and isinstance(first.stop, int):
            # PyTorch leaves out what takes all.
            found = aten.slice.Tensor(x, 0, 0, first.stop, first.step or 1)
            return found[(slice(None), *index[1:])] if isinstance(index, tuple) else found
        number = self._numbers.get(first) if isinstance(first, torch.Tensor) else None
        if number is not None and x.dim() and number >= x.shape[0] > 0:
            # No data choose this place, or the module itself fails on them.
            none = torch.zeros_like(first)
            return x[(none, *index[1:]) if isinstance(index, tuple) else none]
        numbered = self._numbered(index)
        return NotImplemented if numbered is None else x[numbered]

    def _indexed(self, x: torch.Tensor, indices: Any) -> Any:
        numbered = self._numbered(tuple(indices))
        return NotImplemented if numbered is None else aten.index.Tensor(x, list(numbered))

    def _written(self, x: torch.Tensor, index: Any, values: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        before = next((place for place, one in enumerate(parts) if _is_mask(one)), None)
        if before is None or not isinstance(values, torch.Tensor) or not values.dim():
            return NotImplemented
        if any(one != slice(None) for one in parts[:before]) or parts[before + 1 :]:
            return NotImplemented
        mask = parts[before]
        if values.dim() <= before or values.shape[before] < mask.numel() > 1:
            return NotImplemented  # It stands for each of them.
        places = [*[None] * before, *self._columns(mask)]
        x.copy_(aten.index_put.default(x, places, values.to(x.dtype)))
        return None

    def _one_by_one(self, x: torch.Tensor, dim: int = 0) -> Any:
        """Places in turn: a loop's body is run for each place that there may be, and chooses
        nothing where its mask does not hold."""
        mask = self._masks.get(x)
        return NotImplemented if mask is None or dim else self._each_place(mask, x.dim())

    def _each_place(self, mask: torch.Tensor, rank: int) -> Iterator[Any]:
        for place in range(mask.shape[0]):
            self._within.append(mask[place])
            try:
                found = torch.tensor([place] if rank == 2 else place)
                self._numbers[found] = place
                yield found
            finally:
                self._within.pop()

    def _unique(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        names = ("sorted", "return_inverse", "return_counts", "dim")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        dim = given.pop("dim", None)
        given.setdefault("sorted", True)
        table = distinct_ones()
        with self:
            if dim is None:
                found = table[aten._unique2.default](x, **given)
            else:
                found = table[aten.unique_dim.default](x, dim, **given)
        if found is NotImplemented:
            return NotImplemented
        wanted = [True, given.get("return_inverse"), given.get("return_counts")]
        kept = [one for one, asked in zip(found, wanted, strict=True) if asked]
        return kept[0] if len(kept) == 1 else tuple(kept)

    def _suppressed(self, boxes: torch.Tensor, scores: torch.Tensor, overlap: float) -> Any:
        from collage.importers.torch.operators.regions import suppressed

        with self:
            return suppressed(boxes, scores, overlap)

    def _told(self, x: torch.Tensor, how: str) -> Any:
        return NotImplemented if x.dim() or x.is_floating_point() else format(x.item(), how)


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype == torch.bool and index.dim() > 0


def running_with_room(program: Any, roomier: Any, empty: Any = None) -> Callable[..., list[Any]]:
    """What runs a program with room for all rows, and gives the rows that there are.

    Parameters
    ----------
    program, roomier : torch.export.ExportedProgram
        As they were traced, with room for all rows and with other room.
    empty : torch.export.ExportedProgram, optional
        With room for none, where it can be traced so.

    Returns
    -------
    callable
        Takes what the module takes, and gives its results side by side.

    Raises
    ------
    UnknownError
        When it is not known what becomes of rows.
    """
    from collage.importers.torch.absorbed import with_absorbed_rows
    from collage.importers.torch.choosing import with_chosen_rows
    from collage.importers.torch.sizes import require_same_numbers

    table = torch.export.default_decompositions()
    table.pop(aten.linear.default)
    plain, other = (
        with_chosen_rows(one.run_decompositions(table), None) for one in (program, roomier)
    )
    if empty is not None:
        without = with_chosen_rows(empty.run_decompositions(table), None)
        require_same_numbers(plain, without)
    absorbed = with_absorbed_rows(plain, lambda: other)
    running, cut = absorbed or (plain, [])
    warnings.warn(
        "what is decided by how many rows are chosen is compiled for as many as there may be; hold "
        "results against the module's where few or none are",
        stacklevel=4,
    )

    def run(*args: Any, **kwargs: Any) -> list[Any]:
        flat = running._graph_module_flat_inputs(args, kwargs)
        results = list(torch.fx.Interpreter(running.graph_module).run(*flat))
        first = len(results) - len(cut)
        for count, rows in zip(results[first:], cut, strict=True):
            for place, axis in rows.outputs:
                results[place] = results[place].narrow(axis, 0, int(count))
        return results[:first]

    return run
