"""Operators of exported programs that choose rows: the most that there may be, and how many.

``x[mask]``, ``nonzero``, ``masked_select`` and ``unique`` become one operator of ours, which gives
both. So every shape is known, and whoever gives a result to the user cuts it, as in ONNX's files.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument
from tvm import relax
from tvm.relax import op

from collage.backends.contract.errors import ModelError
from collage.importers.choosing import places_of_truth
from collage.importers.torch.asserted import choose_as_asserted
from collage.importers.torch.distinct import distinct_ones, is_known
from collage.importers.torch.nodes import depends_on_data, label, numbers_of_kinds
from collage.importers.torch.operators import regions
from collage.importers.torch.operators.arguments import Importer, arguments
from collage.importers.torch.operators.errors import RefusedError
from collage.importers.torch.operators.segments import counted
from collage.importers.torch.places import (
    UNKNOWN,
    chosen_places,
    chosen_rows_operator,
    none_of_them,
    other_room,
)

aten = torch.ops.aten

_CHECKS = ("_assert_scalar", "_assert_async", "sym_constrain_range")
"""What asserts of a number of rows that there are no more than there can be."""


_ROUNDS = 4
"""Rows may be chosen among those that were chosen before."""

EVERY = -1
"""Each of those that choose rows is given other room, each for another number of them."""
NONE = -2
"""Each of those that choose rows is given room for none."""


class _Choices:
    """What chooses rows, with places instead: those of a mask once, however often it is used.

    Each use would have a number of rows of its own, and two of them cannot be told to be equal.
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def places(self, x: torch.Tensor) -> torch.Tensor:
        if not is_known(x):
            return NotImplemented
        if id(x) not in self._found:
            mask = x if x.dtype == torch.bool else x != 0
            self._found[id(x)] = x, chosen_places(mask, UNKNOWN)
        return self._found[id(x)][1]

    def columns(self, x: torch.Tensor) -> list[torch.Tensor]:
        found = self.places(x)
        return NotImplemented if found is NotImplemented else list(found.unbind(1))

    def indexed(self, x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> torch.Tensor:
        masks = [one for one in indices if one is not None and one.dtype == torch.bool]
        # Where several masks hold is one number of rows only while the program runs.
        if len(masks) != 1 or not is_known(masks[0]):
            return NotImplemented
        given: list[torch.Tensor | None] = []
        for one in indices:
            given += self.columns(one) if one is masks[0] and one is not None else [one]
        return aten.index.Tensor(x, given)

    def put(
        self,
        x: torch.Tensor,
        indices: Sequence[torch.Tensor | None],
        values: torch.Tensor,
        accumulate: bool = False,
    ) -> torch.Tensor:
        """``x[mask] = rows``, with as many rows as the mask holds."""
        masks = [one for one in indices if one is not None]
        if len(masks) != 1 or masks[0].dtype != torch.bool or not is_known(masks[0]):
            return NotImplemented
        # One for all of them, or one for each along other axes, is a choice without places.
        if all(isinstance(n, int) for n in values.shape):
            return NotImplemented
        (mask,) = masks
        before = next(i for i, one in enumerate(indices) if one is not None)
        places: list[torch.Tensor | None] = [*[None] * before, *self.columns(mask)]
        found: torch.Tensor = aten.index_put.default(x, places, values, accumulate)
        return found


def _selected(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    x, mask = torch.broadcast_tensors(x, mask)
    return aten.index.Tensor(x.reshape(-1), [mask.reshape(-1)])


def _table() -> dict[Any, Callable[..., Any]]:
    """Decompositions for one trace: what it has chosen is remembered."""
    choices = _Choices()
    return {
        aten.argwhere.default: choices.places,
        aten.nonzero.default: choices.places,
        aten.nonzero_numpy.default: choices.columns,
        aten.where.default: choices.columns,
        aten.index.Tensor: choices.indexed,
        aten.index_put.default: choices.put,
        aten.masked_select.default: _selected,
        **distinct_ones(),
        aten.bincount.default: counted,
        **regions.choosing(),
    }


def with_chosen_rows(
    program: torch.export.ExportedProgram, more: int | None
) -> torch.export.ExportedProgram:
    """The program with static shapes, as far as rows that data choose can be had with room for all.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Itself where nothing chooses rows.
    more : int or None
        Which of those that choose is given room for one row more than there can be; :data:`EVERY`;
        :data:`NONE`.

    Returns
    -------
    torch.export.ExportedProgram
        Traced anew; each chooser has a static shape, and the number of rows as a result of its own.

    Raises
    ------
    ModelError
        When nothing of the rows but their number is used, which the most would stand for then.
    """
    if not any(map(depends_on_data, program.graph.nodes)):
        return _each_once(program)
    _require_rows(program.graph)
    for _ in range(_ROUNDS):
        program = _with_known_rows(program.run_decompositions(_table()), more)
        # Rows of rows are chosen once it is known how many these may be.
        if not any(map(depends_on_data, program.graph.nodes)):
            break
    return program


def _with_known_rows(
    program: torch.export.ExportedProgram, more: int | None
) -> torch.export.ExportedProgram:
    graph = program.graph
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target.__name__.startswith(_CHECKS):
            graph.erase_node(node)
    asserted = choose_as_asserted(graph)
    for node in asserted:
        warnings.warn(
            f"{label_of(node)} is compiled for as many rows as what follows asks for; where there "
            "are more or fewer, the module fails, and what is compiled does not",
            stacklevel=2,
        )
    if asserted:
        graph.eliminate_dead_code()
    _each_once(program)
    for place, node in enumerate(choosers_of(program)):
        mask = node.args[0]
        shape = mask.meta["val"]
        rooms = {EVERY: other_room(shape, place), NONE: none_of_them(shape, place)}
        node.args = (mask, int(more == place) if more not in rooms else rooms[more])
    program.graph_module.recompile()
    # Traced once more, with numbers for what was unknown: what was computed with it shows them.
    return program.run_decompositions({})


def _each_once(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """``found[x > 0] = x[x > 0]`` has one mask, computed twice."""
    choosers = choosers_of(program)
    alike = numbers_of_kinds(program.graph) if choosers else {}
    known: dict[int, fx.Node] = {}
    for node in choosers:
        first = known.setdefault(alike[node.args[0]], node)
        if first is not node:
            node.replace_all_uses_with(first)
    if choosers:
        program.graph.eliminate_dead_code()
    return program


def _require_rows(graph: fx.Graph) -> None:
    """See that whatever has its number of rows computed with has rows that are computed with."""
    waiting = list(graph.find_nodes(op="output"))
    live = set(waiting)
    while waiting:
        node = waiting.pop()
        if node.target is aten.sym_size.int:
            continue
        fresh = [source for source in node.all_input_nodes if source not in live]
        live.update(fresh)
        waiting += fresh
    for node in live:
        if node.target is aten.sym_size.int and node.args[0] not in live:
            raise ModelError(
                "the model computes with a number of rows that its data choose, at "
                f"{place_of(node)}; cut it there, and compute the rest outside",
                value=node.name,
            )


def choosers_of(program: torch.export.ExportedProgram) -> list[fx.Node]:
    """The nodes that choose rows."""
    return [node for node in program.graph.nodes if node.target is chosen_rows_operator()]


def give_counts(program: torch.export.ExportedProgram, more: int | None) -> list[str]:
    """Let a program give how many rows were chosen, behind its own results.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Changed in place.
    more : int or None
        As :func:`with_chosen_rows` was given it.

    Returns
    -------
    list of str
        The names of what chooses, as that counts them.

    Raises
    ------
    RefusedError
        When PyTorch dropped one of them in between.
    ModelError
        When rows are chosen among rows that were chosen, of which some are none.
    """
    choosers = choosers_of(program)
    _require_one_level(choosers)
    if more is not None and [node.args[1] for node in choosers].index(1) != more:
        raise RefusedError("what chooses rows was taken apart in two ways")
    graph, signature = program.graph, program.graph_signature
    (output,) = graph.find_nodes(op="output")
    labels = []
    for node in choosers:
        with graph.inserting_before(output):
            count = graph.call_function(operator.getitem, (node, 1))
        count.meta["val"] = node.meta["val"][1]
        output.args = ((*output.args[0], count),)
        signature.output_specs.append(
            OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(count.name), None)
        )
        labels.append(label_of(node))
    return labels


def _require_one_level(choosers: list[fx.Node]) -> None:
    follows = set(choosers)
    for node in choosers[0].graph.nodes if choosers else ():
        if not follows.isdisjoint(node.all_input_nodes):
            if node in choosers:
                raise ModelError(
                    f"{label_of(node)} chooses among rows of which the data say how many "
                    "there are; cut the model there, and compute the rest outside",
                    value=node.name,
                )
            follows.add(node)


def label_of(node: fx.Node) -> str:
    """What chooses rows, by where in the model's code it stands."""
    return f"the selection at {place_of(node)}"


def place_of(node: fx.Node) -> str:
    """The line of the model's code, where PyTorch knows it."""
    lines = str(node.meta.get("stack_trace") or "").strip().splitlines()
    return f"'{lines[-1].strip() if len(lines) > 1 else label(node)}'"


def chosen_rows(importer: Importer, node: fx.Node) -> tuple[relax.Expr, relax.Expr]:
    """Rows of coordinates, and how many.

    Parameters
    ----------
    importer : Importer
        Binds what is computed on the way.
    node : fx.Node
        A call of our operator.

    Returns
    -------
    tuple[relax.Expr, relax.Expr]
        (rows, axes) of int64, zeros behind those that there are; and a vector of one element.
    """
    mask, more = arguments(importer, node, "mask", "more")
    places, count = places_of_truth(importer.block_builder, mask, int(more))
    return importer.emit(op.stack(places, 1)), count


CHOOSING = {"chosen_rows.default": chosen_rows}
"""By the name that the translator has for an operator."""
