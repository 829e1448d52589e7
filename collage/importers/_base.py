"""What an importer gives, and the protocol that each format's importer keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import tvm
from numpy.typing import NDArray
from tvm import relax

from collage.backends.contract.errors import ModelError, ShapeError
from collage.backends.relax.static_shape import tensor_shape
from collage.course import Course
from collage.importers.functions import MAIN, function_alone, public_functions
from collage.structure import Signature
from collage.tensor_info import TensorInfo

Shapes = Mapping[str, Sequence[int]]
"""Concrete shapes of inputs, by input name; of an open dimension its extent alone, by its name."""


@dataclass(frozen=True)
class ChosenRows:
    """Rows of which the data say how many there are, computed as the most that there may be.

    Attributes
    ----------
    label : str
        The operator that chooses them, and what the model calls it.
    count : int
        The output that says how many they are; the caller of the model does not see it.
    more : ImportedModel or None
        The same model with room for one more: what depends on them has another shape there. None
        where it is known which outputs are rows of them.
    outputs : tuple of (int, int)
        Which those are, and along which axis.
    """

    label: str
    count: int
    more: ImportedModel | None
    outputs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class ImportedModel:
    """A model as a Relax module.

    Attributes
    ----------
    name : str
        The file's stem or the graph's name.
    mod : tvm.IRModule
        Function ``main``, weights bound as inline constants, not yet normalized.
    inputs, outputs : tuple of TensorInfo
        In the order of ``main``'s parameters and results, under the model's own names.
    source_format : str
        ``onnx``, ``pt2``, ``relax-json``, ``tvmscript`` or ``module``.
    function : str
        What ``main`` is called in the model.
    others : tuple of ImportedModel
        The model's other public functions, each as the ``main`` of a module of its own.
    signature : Signature or None
        How inputs and outputs lie in dicts, tuples and such; None where they lie side by side.
    chosen : tuple of ChosenRows
        What is to be cut off its outputs.
    course : Course or None
        Where data choose what runs, the model: what stands here is the first of its parts then, and
        the other ones are ``others``.
    examples : tuple of (ndarray or None)
        By input, with what the model was traced; empty where that is not known.

    Examples
    --------
    >>> from collage.importers import load_model
    >>> from collage.testing import graph
    >>> model = load_model(graph([(2, 8)], lambda emit, x: relax.op.exp(x)))
    >>> model.source_format, model.outputs[0].shape
    ('module', (2, 8))
    """

    name: str
    mod: tvm.IRModule
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    source_format: str
    function: str = MAIN
    others: tuple[ImportedModel, ...] = ()
    signature: Signature | None = None
    chosen: tuple[ChosenRows, ...] = ()
    course: Course | None = None
    examples: tuple[NDArray[Any] | None, ...] = ()


class FileImporter(Protocol):
    """Reads one file format."""

    @property
    def source_format(self) -> str:
        """The format's name, see :class:`ImportedModel`."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Usual suffixes; only a hint, which formats are tried first."""

    def recognizes(self, path: Path) -> bool:
        """Whether the file's content is of this format."""

    def load(self, path: Path, shapes: Shapes) -> ImportedModel:
        """The model in a file of this format.

        Parameters
        ----------
        path : Path
            A file that :meth:`recognizes` accepts.
        shapes : mapping of str to sequence of int
            Concrete shapes of inputs with open dimensions.

        Returns
        -------
        ImportedModel
            Not normalized; all shapes are numbers.

        Raises
        ------
        ModelError, ShapeError
            See :func:`collage.importers.load_model`.
        """


def from_module(
    mod: tvm.IRModule,
    *,
    name: str,
    source_format: str,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> ImportedModel:
    """A module whose functions have static shapes, with their inputs and outputs described.

    Parameters
    ----------
    mod : tvm.IRModule
        With a Relax function ``main``, or other public ones.
    name : str
        The model's.
    source_format : str
        See :class:`ImportedModel`.
    input_names, output_names : sequence of str, optional
        The model's own names in ``main``; by default those of the parameters, and ``output_0`` and
        so on.

    Returns
    -------
    ImportedModel
        Of ``main``, or of the first function where none is called so; holds ``mod`` itself where
        that is all there is.

    Raises
    ------
    ModelError
        When there is no public Relax function, or one takes or gives something else than tensors.
    ShapeError
        When a parameter or a result has an open dimension.
    """
    functions = public_functions(mod)
    if not functions:
        found = ", ".join(str(gv.name_hint) for gv in mod.get_global_vars()) or "none"
        raise ModelError(
            f"the module has no Relax function '{MAIN}' and no other public one; functions: "
            f"{found}",
            value=name,
        )
    first, *rest = functions
    others = tuple(
        _described(function_alone(mod, other), name, source_format, other) for other in rest
    )
    alone = function_alone(mod, first)
    model = _described(alone, name, source_format, first, input_names, output_names)
    return replace(model, others=others)


def _described(
    mod: tvm.IRModule,
    name: str,
    source_format: str,
    function: str,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> ImportedModel:
    main = mod[MAIN]
    wanted = input_names or [str(p.name) for p in main.params]
    inputs = tuple(_spec(n, p.ty, "input") for n, p in zip(wanted, main.params, strict=True))
    result = main.ret_ty
    fields = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    labels = output_names or [f"output_{i}" for i in range(len(fields))]
    outputs = tuple(_spec(n, ty, "output") for n, ty in zip(labels, fields, strict=True))
    return ImportedModel(name, mod, inputs, outputs, source_format, function)


def _spec(name: str, ty: tvm.ir.Type, role: str) -> TensorInfo:
    if not isinstance(ty, relax.TensorType):
        raise ModelError(f"{role} '{name}' is no tensor but {ty}", value=name)
    if not isinstance(ty.shape, relax.ShapeExpr):
        raise ShapeError(f"the shape of {role} '{name}' depends on data", value=name)
    shape = tensor_shape(ty)
    if shape is None:
        text = ",".join(str(d) for d in ty.shape.values)
        raise ShapeError(
            f"{role} '{name}' has the open shape ({text}); only static shapes can be optimized: "
            "give numbers, or a range as 1:8, with shapes= (--shape)",
            value=text,
        )
    return TensorInfo(shape, str(ty.dtype.dtype), name)


def reject_shapes(shapes: Shapes, model: ImportedModel) -> ImportedModel:
    """The model itself, where the given shapes only repeat those that its format fixes.

    Parameters
    ----------
    shapes : mapping of str to sequence of int
        What the user gave.
    model : ImportedModel
        With the shapes it has.

    Returns
    -------
    ImportedModel
        As it was given.

    Raises
    ------
    ShapeError
        For an unknown input or another shape.
    """
    specs = [(f.function, spec) for f in (model, *model.others) for spec in f.inputs]
    for name, shape in shapes.items():
        known = [spec.shape for of, spec in specs if name in (spec.name, f"{of}.{spec.name}")]
        if not known:
            raise unknown_input(name, list(dict.fromkeys(spec.name for _, spec in specs)))
        if tuple(shape) not in known:
            fixed = " or ".join(dict.fromkeys(map(show, known)))
            raise ShapeError(
                f"input '{name}' has the fixed shape {fixed}, not {show(shape)}",
                value=tuple(shape),
            )
    return model


def extents_by_name(
    shapes: Shapes, inputs: Iterable[str], dimensions: Iterable[str]
) -> dict[str, int]:
    """The extents of open dimensions that were given by the dimensions' names.

    Parameters
    ----------
    shapes : mapping of str to sequence of int
        What the user gave: shapes of inputs, and extents of dimensions.
    inputs : iterable of str
        The names of inputs.
    dimensions : iterable of str
        The names of open dimensions; one that is an input's name, too, is the input's.

    Returns
    -------
    dict of str to int
        By dimension.

    Raises
    ------
    ShapeError
        For a name that is neither, and for what is not one whole number.
    """
    inputs, dimensions = list(inputs), list(dict.fromkeys(dimensions))
    found = {}
    for name, shape in shapes.items():
        if name in inputs:
            continue
        if name not in dimensions:
            raise unknown_input(name, inputs, dimensions)
        extent = shape[0] if len(shape) == 1 else None
        if isinstance(extent, bool) or not isinstance(extent, int) or extent < 0:
            raise ShapeError(
                f"'{name}' is a dimension, which has one whole number, not {show(shape)}; "
                "for several, write a range as 1:8 or buckets as 1|4|8",
                value=tuple(shape),
            )
        found[name] = extent
    return found


def unknown_input(
    name: str, known: Sequence[str] | Mapping[str, object], dimensions: Sequence[str] = ()
) -> ShapeError:
    """The error for a shape given to an input that is not there.

    Parameters
    ----------
    name : str
        What the user gave a shape for.
    known : sequence or mapping of str
        The names of the inputs that are there.
    dimensions : sequence of str
        The names of the open dimensions that there are.

    Returns
    -------
    ShapeError
        To be raised; lists the names that there are.
    """
    listed = ", ".join(known) or "none"
    if dimensions:
        listed += f"; its open dimensions: {', '.join(dimensions)}"
    return ShapeError(f"the model has no input '{name}'; its inputs: {listed}", value=name)


def show(shape: Sequence[object]) -> str:
    """A shape as the command line takes it: ``1,3,224,224``."""
    return ",".join(str(d) for d in shape) or "()"
