"""A program with control flow as a straight line, or in parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram, ModuleCallEntry
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    OutputKind,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.utils import _pytree as pytree

from collage.backends.contract.errors import ModelError
from collage.importers._base import ImportedModel
from collage.importers.courses.values import Value
from collage.importers.courses.whole import whole_model
from collage.importers.torch.courses.cutter import Cutter
from collage.importers.torch.courses.guessing import Known
from collage.importers.torch.courses.hoisting import functional
from collage.importers.torch.courses.parts import Importing, Parts
from collage.importers.torch.courses.symbols import READS
from collage.importers.torch.courses.writer import Fakes, Writer
from collage.importers.torch.courses.written import Written, has_bodies, is_cut
from collage.importers.torch.nodes import as_array, type_name
from collage.importers.torch.operators.errors import RefusedError
from collage.importers.torch.structure import keep_tensors, signature_of
from collage.state import StateTensor, kept_from_call_to_call
from collage.structure import Signature
from collage.tensor_info import TensorInfo

_NUMBERS = (SymIntArgument, SymFloatArgument, SymBoolArgument)

_MOST_ELEMENTS = 1024


@dataclass(frozen=True)
class Straightened:
    """A program whose bodies were written out, as far as they are.

    Attributes
    ----------
    program : ExportedProgram
        It, in a straight line; with the bodies where those that are left have to be cut.
    graph : fx.Graph
        What was written.
    signature : Signature
        How inputs and outputs lie.
    is_straight : bool
        Whether there is nothing to be cut.
    fakes : Fakes
        What stands in for the graph's tensors.
    """

    program: ExportedProgram
    graph: fx.Graph
    signature: Signature
    is_straight: bool
    fakes: Fakes


def has_control_flow(program: ExportedProgram) -> bool:
    """Whether operators have bodies, or numbers are taken out of tensors."""
    return any(has_bodies(node) or node.target in READS for node in program.graph.nodes)


def straightened(
    program: ExportedProgram,
    state: tuple[StateTensor, ...] = (),
    written: tuple[str, ...] = (),
) -> Straightened:
    """A program without bodies, as far as it can be written without.

    Parameters
    ----------
    program : ExportedProgram
        With control flow; not changed.
    state : tuple of StateTensor
        What it keeps.
    written : tuple of str
        The inputs that it writes into.

    Returns
    -------
    Straightened
        And how it is called.

    Raises
    ------
    ModelError
        For what cannot be written.

    Examples
    --------
    >>> class Net(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
    >>> found = straightened(torch.export.export(Net(), (torch.zeros(4),)))
    >>> found.is_straight
    True
    """
    program = functional(program)
    for spec in program.graph_signature.output_specs:
        if isinstance(spec.arg, _NUMBERS) and spec.kind is OutputKind.USER_OUTPUT:
            spec.arg = TensorArgument(spec.arg.name)
    signature = signature_of(program, state, written)
    keep_tensors(program)
    writer = Writer(Fakes())
    weights = _weights(program)
    given, known = [], {}
    for node in program.graph.find_nodes(op="placeholder"):
        given.append(writer.take(node.name, node.meta["val"]))
        weight = weights.get(node.name)
        if weight is not None and weight.numel() <= _MOST_ELEMENTS:
            known[given[-1]] = weight.detach().cpu()
    try:
        found = Written(writer, Known(known)).inline(program.graph_module, given)
    except RefusedError as err:
        raise ModelError(f"these operators cannot be imported: {err}", value=str(err)) from err
    results = [one if isinstance(one, fx.Node) else writer.constant(one) for one in found]
    writer.graph.output(tuple(results))
    writer.graph.eliminate_dead_code()
    is_straight = not any(map(is_cut, writer.graph.nodes))
    if is_straight:
        program = _with_graph(program, writer.graph, results)
    return Straightened(program, writer.graph, signature, is_straight, writer.fakes)


def _with_graph(
    program: ExportedProgram, graph: fx.Graph, results: list[fx.Node]
) -> ExportedProgram:
    """A program that computes something else from the same inputs and weights."""
    found = program.graph_signature
    outputs = [
        replace(spec, arg=TensorArgument(node.name))
        for spec, node in zip(found.output_specs, results, strict=True)
    ]
    return ExportedProgram(
        torch.nn.Module(),
        graph,
        ExportGraphSignature(list(found.input_specs), outputs),
        program.state_dict,
        {},
        _with_results(program, sum(spec.kind is OutputKind.USER_OUTPUT for spec in outputs)),
        constants=program.constants,
    )


def _with_results(program: ExportedProgram, count: int) -> list[ModuleCallEntry]:
    """How the program is called that gives so many results side by side: PyTorch looks at that
    when it takes operators apart, and what is no tensor was taken out."""
    whole, *others = program.module_call_graph
    if whole.signature is None:
        return list(program.module_call_graph)
    flat = pytree.tree_structure((0,) * count)
    return [replace(whole, signature=replace(whole.signature, out_spec=flat)), *others]


def import_course(straight: Straightened, name: str, importing: Importing) -> ImportedModel:
    """A program in parts, and what calls them.

    Parameters
    ----------
    straight : Straightened
        With something to be cut.
    name : str
        The model's.
    importing : callable
        Translates a straight-line program.

    Returns
    -------
    ImportedModel
        The first part, the other ones behind it; its ``course`` says what the model is.

    Raises
    ------
    ModelError
        For what cannot be imported.
    """
    weights = _weights(straight.program)
    placeholders = straight.graph.find_nodes(op="placeholder")
    values = {node.name: _described(node) for node in placeholders}
    parts = Parts(weights, values, straight.fakes, importing)
    region = Cutter(parts, values).cut(straight.graph, [node.name for node in placeholders], "main")
    known = {key: as_array(weights[key]) for key in region.used() if key in weights}
    inputs = [
        TensorInfo(values[node.name].shape, values[node.name].dtype, node.name)
        for node in placeholders
        if node.name in straight.program.graph_signature.user_inputs
    ]
    results = dict(
        zip(
            straight.signature.output_names(),
            (values[result] for result in region.results),
            strict=True,
        )
    )
    state = straight.signature.state
    return whole_model(
        *(name, inputs, results, region, parts, known),
        signature=straight.signature,
        remarks=[kept_from_call_to_call(state)] if state else [],
    )


def _described(node: fx.Node) -> Value:
    like: Any = node.meta["val"]
    return Value(tuple(map(int, like.shape)), type_name(like.dtype))


def _weights(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """What is bound in a program, by the names of its inputs."""
    kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    return {
        spec.arg.name: program.state_dict.get(spec.target, program.constants.get(spec.target))
        for spec in program.graph_signature.input_specs
        if spec.kind in kinds
    }
