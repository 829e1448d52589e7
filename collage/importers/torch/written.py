"""Inputs that a program writes into: what they hold afterwards stands among its results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec, TensorArgument
from torch.utils import _pytree as pytree

from collage.importers.torch.courses.hoisting import functional
from collage.importers.torch.state import writing
from collage.importers.torch.structure import is_copy_of


def with_written(program: ExportedProgram) -> tuple[ExportedProgram, tuple[str, ...]]:
    """A program that gives what it writes into its inputs; itself, where it writes into none.

    Parameters
    ----------
    program : ExportedProgram
        All of its inputs' extents are numbers; not changed.

    Returns
    -------
    ExportedProgram
        With what is new in these inputs behind its results.
    tuple of str
        The inputs, as the program calls them.

    Examples
    --------
    >>> class Cache(torch.nn.Module):
    ...     def forward(self, kept, x):
    ...         kept[1:2] = x
    ...         return kept.sum()
    >>> program = torch.export.export(Cache(), (torch.zeros(4, 2), torch.ones(2)))
    >>> with_written(program)[1]
    ('kept',)
    """
    specs = program.graph_signature
    inputs = {s.arg.name for s in specs.input_specs if s.kind is InputKind.USER_INPUT}
    writes = any(spec.kind is OutputKind.USER_INPUT_MUTATION for spec in specs.output_specs)
    if not writes and not any(base.name in inputs for _, base in writing(program)):
        return program, ()
    program = functional(program)
    (output,) = program.graph.find_nodes(op="output")
    specs = program.graph_signature
    pairs = list(zip(output.args[0], specs.output_specs, strict=True))
    new: dict[str, fx.Node] = {
        str(spec.target): value
        for value, spec in pairs
        if spec.kind is OutputKind.USER_INPUT_MUTATION and not is_copy_of(value, spec.target)
    }
    left = [pair for pair in pairs if pair[1].kind is not OutputKind.USER_INPUT_MUTATION]
    output.args = ((*(value for value, _ in left), *new.values()),)
    specs.output_specs = [
        *(spec for _, spec in left),
        *(OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(v.name), None) for v in new.values()),
    ]
    if new:
        program.module_call_graph[:] = _called(program, len(new))
    return program, tuple(new)


def _called(program: ExportedProgram, count: int) -> list[Any]:
    """How it is called: with so many more tensors beside its results."""
    first, *others = program.module_call_graph
    more = pytree.TreeSpec(list, None, [pytree.treespec_leaf() for _ in range(count)])
    given = pytree.TreeSpec(tuple, None, [first.signature.out_spec, more])
    return [replace(first, signature=replace(first.signature, out_spec=given)), *others]
