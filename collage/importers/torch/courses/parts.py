"""The straight-line parts of a program, imported one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import tvm
from numpy.typing import NDArray
from torch import fx
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.utils import _pytree as pytree

from collage.backends.contract.errors import ModelError
from collage.course import Run
from collage.importers._base import from_module
from collage.importers.courses.kept import KeptParts, known_results
from collage.importers.courses.values import Value
from collage.importers.torch.courses.writer import Fakes
from collage.importers.torch.cut import CutRows
from collage.importers.torch.nodes import type_name

Importing = Callable[[ExportedProgram], tuple[tvm.IRModule, list[CutRows]]]
"""Translates a straight-line program; with what chooses rows in it."""


class Parts(KeptParts):
    """Imports parts, and remembers them.

    Parameters
    ----------
    weights : dict of str to Tensor
        What is known before anything runs; parts whose results turn out to be, add to it.
    values : dict of str to Value
        What is there, by name; gets what parts give.
    fakes : Fakes
        What stands in for tensors.
    importing : callable
        See :data:`Importing`.
    """

    def __init__(
        self,
        weights: dict[str, torch.Tensor],
        values: dict[str, Value],
        fakes: Fakes,
        importing: Importing,
    ) -> None:
        super().__init__()
        self._weights = weights
        self._values = values
        self._fakes = fakes
        self._importing = importing

    def run(
        self, results: Sequence[fx.Node], names: dict[fx.Node, str], prefix: str, role: str
    ) -> list[Run]:
        """The call of a part that computes nodes; none if all of them are known.

        Parameters
        ----------
        results : sequence of fx.Node
            What is wanted.
        names : dict of fx.Node to str
            What is there, by the nodes that stand for it; gets the results.
        prefix : str
            Before the names of results.
        role : str
            What the part is called, with a number.

        Returns
        -------
        list of Run
            One, or none.

        Raises
        ------
        ModelError
            For what cannot be imported.
        """
        wanted = [node for node in dict.fromkeys(results) if node not in names]
        if not wanted:
            return []
        program, inputs = self._program(wanted, names)
        mod, choosers = self._importing(program)
        if choosers:
            raise ModelError(
                f"{choosers[0].label} chooses as many rows as the data say, in a model whose "
                "course data choose as well; cut the model there",
                value=choosers[0].label,
            )
        outputs = [prefix + node.name for node in wanted]
        known = known_results(mod)
        for node, name, array in zip(wanted, outputs, known, strict=True):
            names[node] = name
            like = node.meta["val"]
            self._values[name] = Value(tuple(map(int, like.shape)), type_name(like.dtype))
            if array is not None:
                self._weights[name] = _as_tensor(array, like.dtype)
        if all(array is not None for array in known):
            return []
        found = from_module(
            mod, name=role, source_format="pt2", input_names=inputs, output_names=outputs
        )
        return [Run(self.keep(found, role), tuple(inputs), tuple(outputs))]

    def _program(
        self, wanted: Sequence[fx.Node], names: dict[fx.Node, str]
    ) -> tuple[ExportedProgram, list[str]]:
        """A program that gives these nodes, and the names of what it is given."""
        inner, outer = _needed(wanted, names)
        known = [node for node in outer if names[node] in self._weights]
        given = {names[node]: node for node in outer if node not in known}
        graph, env = fx.Graph(), dict[fx.Node, Any]()
        inputs: list[InputSpec] = []
        state: dict[str, torch.Tensor] = {}

        def take(node: fx.Node, kind: InputKind) -> None:
            same = next((env[one] for one in env if names[one] == names[node]), None)
            if same is not None:
                env[node] = same
                return
            env[node] = made = graph.placeholder(f"p{len(inputs)}")
            made.meta["val"] = self._fakes.like(node.meta["val"])
            is_weight = kind is InputKind.BUFFER
            inputs.append(
                InputSpec(
                    kind,
                    TensorArgument(made.name),
                    made.name if is_weight else None,
                    is_weight or None,
                )
            )
            if is_weight:
                state[made.name] = self._weights[names[node]]

        for node in known:
            take(node, InputKind.BUFFER)
        for node in outer:
            if node not in known:
                take(node, InputKind.USER_INPUT)
        for node in inner:
            env[node] = graph.node_copy(node, env.__getitem__)
        graph.output(tuple(env[node] for node in wanted))
        outputs = [
            OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(env[node].name), None)
            for node in wanted
        ]
        signature = ExportGraphSignature(inputs, outputs)
        leaves = [spec.arg for spec in inputs if spec.kind is InputKind.USER_INPUT]
        call = ModuleCallSignature(
            inputs=leaves,
            outputs=[spec.arg for spec in outputs],
            in_spec=pytree.tree_structure((tuple(range(len(leaves))), {})),
            out_spec=pytree.tree_structure(tuple(range(len(outputs)))),
        )
        program = ExportedProgram(
            *(torch.nn.Module(), graph, signature, state, {}, [ModuleCallEntry("", call)])
        )
        return program, list(given)


def _needed(
    wanted: Sequence[fx.Node], names: dict[fx.Node, str]
) -> tuple[list[fx.Node], list[fx.Node]]:
    """What has to be computed for nodes, in order, and what that is computed from."""
    waiting, inner, outer = list(wanted), set[fx.Node](), dict[fx.Node, None]()
    while waiting:
        node = waiting.pop()
        if node in names:
            outer[node] = None
        elif node not in inner:
            inner.add(node)
            waiting += node.all_input_nodes
    graph = wanted[0].graph
    return [node for node in graph.nodes if node in inner], [n for n in graph.nodes if n in outer]


def _as_tensor(array: NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    """A copy, in PyTorch's type; numpy has none for bfloat16."""
    plain = np.array(array, dtype="float32") if dtype == torch.bfloat16 else np.array(array)
    return torch.from_numpy(plain).to(dtype)
