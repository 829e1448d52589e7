"""The first stage: a model becomes a canonical module and its dataflow graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tvm
from numpy.typing import NDArray

from collage.backends.contract.errors import ModelError
from collage.backends.devices import DeviceKind
from collage.backends.relax.recurrent import Recurrence
from collage.bundle.signature import Places, Rows
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.cost.workload.shared_weights import MappedWeights
from collage.course import Course
from collage.importers import ExampleInputs, ImportedModel, load_model
from collage.importers.functions import MAIN
from collage.importers.torch import ExportedModule
from collage.normalize import normalize
from collage.passes import (
    combine_parallel_matmul,
    expand_attention,
    fold_quantized,
    split_to_slices,
    to_channels_last,
    write_out_recurrent,
)
from collage.pipeline.computable import require_computable
from collage.pipeline.inputs.drawing import draw_inputs
from collage.pipeline.inputs.places import places_of
from collage.pipeline.inputs.working_range import Range, working_ranges
from collage.pipeline.shapes.rows import rows_of
from collage.search.dataflow import DataflowGraph
from collage.state import kept_from_call_to_call
from collage.structure import Signature
from collage.tensor_info import TensorInfo


@dataclass(frozen=True)
class Imported:
    """A model, ready to be searched over.

    Attributes
    ----------
    name : str
        For the report and the bundle.
    mod : tvm.IRModule
        The normalized module.
    graph : DataflowGraph
        Of its ``main``.
    inputs, outputs : tuple of TensorInfo
        In the order of ``main``'s parameters and results.
    ranges : tuple of Range
        What each input should be like; empty where nothing is known.
    function : str
        What ``main`` is called in the model and in its bundle.
    remarks : tuple of str
        What the report is to say of how it was made ready.
    signature : Signature or None
        How inputs and outputs lie in dicts, tuples and such; None where they lie side by side.
    rows : tuple of Rows
        What is cut off its outputs.
    places : tuple of Places
        Inputs that hold places in a tensor, and which there are.
    course : Course or None
        Of the first part of a model whose data choose what runs: what the model is.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.backends.devices import CPU
    >>> from collage.testing import graph
    >>> imported = import_model(graph([(2,)], lambda emit, x: op.exp(x)), CPU)
    >>> imported.inputs
    (TensorInfo(shape=(2,), dtype='float32', name='x0'),)
    >>> [array.shape for array in imported.random_inputs(seed=0)]
    [(2,)]
    """

    name: str
    mod: tvm.IRModule
    graph: DataflowGraph
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    ranges: tuple[Range, ...] = ()
    function: str = MAIN
    remarks: tuple[str, ...] = ()
    signature: Signature | None = None
    rows: tuple[Rows, ...] = ()
    places: tuple[Places, ...] = ()
    course: Course | None = None

    def random_inputs(self, seed: int) -> list[NDArray[Any]]:
        """Arrays to run the model on, the same for the same seed."""
        return draw_inputs(self.mod, self.inputs, seed, ranges=self.ranges)

    def over(self, weights: MappedWeights) -> Imported:
        """The same with large weights in files, which is itself where they are already."""
        mod = weights.of(self.mod)
        if mod is self.mod:
            return self
        return replace(self, mod=mod, graph=DataflowGraph.from_function(mod["main"], mod))


def import_model(
    model: Any,
    device: DeviceKind,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    allow_code: bool = False,
    example_inputs: ExampleInputs = None,
    progress: ProgressCallback = ignore,
) -> Imported:
    """Import a model and bring it into the form that a device's backends want.

    Parameters
    ----------
    model : path, tvm.IRModule, onnx.ModelProto, torch.nn.Module or ExportedProgram
        See :func:`collage.importers.load_model`.
    device : DeviceKind
        What it is going to run on.
    shapes : mapping of str to sequence of int, optional
        For inputs with open dimensions.
    allow_code : bool
        Whether a TVMScript ``.py`` file may be run.
    example_inputs : sequence or mapping, optional
        What a ``torch.nn.Module`` is called with.
    progress : callable
        Informed of the steps.

    Returns
    -------
    Imported
        Its ``main``, or its first function where none is called so.

    Raises
    ------
    ModelError
        When it cannot be imported, holds operators that nothing can compile, or is several
        functions because data choose what runs.
    ShapeError
        When an input's shape is missing or wrong.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.backends.devices import CPU
    >>> from collage.testing import graph
    >>> mod = graph([(8,)], lambda emit, x: op.multiply(x, emit(op.sigmoid(x))))
    >>> imported = import_model(mod, CPU)
    >>> [imported.graph.op_name(index) for index in range(len(imported.graph))]
    ['nn.silu']
    """
    found = import_functions(
        *(model, device),
        shapes=shapes,
        allow_code=allow_code,
        example_inputs=example_inputs,
        progress=progress,
    )[0]
    if found.course is not None:
        raise ModelError(
            f"data choose what '{found.name}' computes, so it is cut into several functions",
            value=found.name,
        )
    return found


def import_functions(
    model: Any,
    device: DeviceKind,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    allow_code: bool = False,
    example_inputs: ExampleInputs = None,
    check_sec: float | None = None,
    progress: ProgressCallback = ignore,
) -> list[Imported]:
    """As :func:`import_model`, all public functions of a model, ``main`` first.

    Parameters
    ----------
    model, device, shapes, allow_code, example_inputs, progress
        As :func:`import_model` takes them.
    check_sec : float, optional
        As :func:`collage.importers.load_model` takes it.

    Returns
    -------
    list of Imported
        One per function; of a model whose data choose what runs, one per part.

    Raises
    ------
    ModelError, ShapeError
        As :func:`import_model` does.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.backends.devices import CPU
    >>> from collage.testing import graph
    >>> mod = graph([(8,)], lambda emit, x: op.exp(x))
    >>> mod["decode"] = graph([(1,)], lambda emit, x: op.exp(x))["main"]
    >>> [(one.function, one.inputs[0].shape) for one in import_functions(mod, CPU)]
    [('main', (8,)), ('decode', (1,))]
    """
    name = str(model) if isinstance(model, str | Path | ExportedModule) else type(model).__name__
    progress(ProgressEvent("import", 0, 2, name))
    loaded = load_model(
        model,
        shapes=shapes,
        allow_code=allow_code,
        example_inputs=example_inputs,
        check_sec=check_sec,
    )
    progress(ProgressEvent("import", 1, 2, "normalizing"))
    functions = [prepare(one, device) for one in (loaded, *loaded.others)]
    operators = sum(len(function.graph) for function in functions)
    progress(ProgressEvent("import", 2, 2, f"{operators} operators"))
    return functions


def prepare(loaded: ImportedModel, device: DeviceKind) -> Imported:
    """An imported function in the form that a device's backends want.

    Parameters
    ----------
    loaded : ImportedModel
        Not yet normalized.
    device : DeviceKind
        What it is going to run on.

    Returns
    -------
    Imported
        Normalized, with its dataflow graph.

    Raises
    ------
    ModelError
        When it holds operators that nothing can compile.
    """
    mod = _normalized(device, loaded.mod)
    graph = DataflowGraph.from_function(mod["main"], mod)
    require_computable(graph, loaded.name)
    state = loaded.signature.state if loaded.signature is not None else ()
    ranges = list(working_ranges(loaded.mod))
    for index, example in enumerate(loaded.examples):
        ranges[index] = replace(ranges[index], example=example)
    for kept in state:
        initial = kept.initial(loaded.inputs[kept.input])
        ranges[kept.input] = replace(ranges[kept.input], initial=initial)
    return Imported(
        *(loaded.name, mod, graph, loaded.inputs, loaded.outputs, tuple(ranges), loaded.function),
        signature=loaded.signature,
        rows=rows_of(loaded),
        places=places_of(loaded.mod),
        course=loaded.course,
        remarks=_remarks(loaded.signature),
    )


def _remarks(signature: Signature | None) -> tuple[str, ...]:
    """What callers by name have to know of what a model changes."""
    if signature is None:
        return ()
    names = [f"'{signature.input_names()[one.input]}'" for one in signature.written]
    inputs = (
        f"the model writes into {', '.join(names)}: a call does that in what it is given; by name "
        "(run, C and C++) what is new are outputs"
    )
    kept = [kept_from_call_to_call(signature.state)] if signature.state else []
    return tuple([inputs] * bool(names) + kept)


def _normalized(device: DeviceKind, mod: tvm.IRModule) -> tvm.IRModule:
    """The canonical form of a module, as a device wants it."""
    mod = normalize(mod)
    written = write_out_recurrent(mod, lambda layer: _loops_over(device, layer))
    if written is not mod:
        mod = normalize(written)
    if device.folds_quantized and (folded := fold_quantized(mod)) is not mod:
        mod = normalize(folded)
    if device.cuts_splits and (cut := split_to_slices(mod)) is not mod:
        mod = normalize(cut)
    if device.channels_last:
        mod = combine_parallel_matmul(to_channels_last(mod))
    if device.has_attention:
        return mod
    expanded = expand_attention(mod)
    return mod if expanded is mod else normalize(expanded)


def _loops_over(device: DeviceKind, layer: Recurrence) -> bool:
    products = layer.products // (layer.steps * len(layer.backwards))
    return device.loops_over_steps(products, rounds_states=layer.stepped)
