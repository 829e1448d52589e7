"""ONNX models: concrete shapes, folded shape computations, then TVM's importer."""

from __future__ import annotations

import logging
import warnings
from dataclasses import replace
from pathlib import Path

import onnx
import onnx.version_converter
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from collage.backends.contract.errors import CollageError, ModelError, telling_line
from collage.importers._base import ChosenRows, FileImporter, ImportedModel, Shapes, from_module
from collage.importers.onnx.choosers import count_rows, room_for_one_more
from collage.importers.onnx.converter import CheckedImporter
from collage.importers.onnx.courses import import_course
from collage.importers.onnx.deciding import require_undecided
from collage.importers.onnx.fold import attach_weights, detach_weights, fold, weight_inputs
from collage.importers.onnx.functions import expand_functions
from collage.importers.onnx.known import fold_known
from collage.importers.onnx.labels import with_numbers_for_labels, without_maps
from collage.importers.onnx.listed_axes import list_axes
from collage.importers.onnx.narrow import fill_in_sparse, weights_of, widen_narrow
from collage.importers.onnx.options import without_options
from collage.importers.onnx.order import in_order
from collage.importers.onnx.shapes import concretize, real_inputs
from collage.importers.onnx.soundness import require_standard, require_text, require_whole
from collage.importers.onnx.straight import DataDecideError, flatten
from collage.importers.onnx.support import (
    drop_unused_outputs,
    node_label,
    require_element_types,
    require_supported,
    require_tensors,
)
from collage.importers.onnx.text import TEXT_SUFFIXES, read_text, text_format_of

_log = logging.getLogger(__name__)

_OLDEST_OPSET = 7
"""Older graphs broadcast by attribute, which TVM's importer does not know; they are converted."""


class OnnxImporter(FileImporter):
    """Reads ONNX files, of protobuf or as text, with or without external data.

    Examples
    --------
    >>> net = onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[4] x) => (float[4] y) { y = Relu(x) }'''
    ... )
    >>> path = Path("net.onnx")
    >>> onnx.save(net, path)
    >>> OnnxImporter().recognizes(path), OnnxImporter().load(path, {}).name
    (True, 'net')
    """

    source_format = "onnx"
    suffixes = (".onnx", ".pb", ".onnxproto", *TEXT_SUFFIXES)

    def recognizes(self, path: Path) -> bool:
        return text_format_of(path) is not None or self._parse(path) is not None

    def load(self, path: Path, shapes: Shapes) -> ImportedModel:
        """The model in an ONNX file.

        Raises
        ------
        ModelError, ShapeError
            As :func:`import_onnx`, and for external weights that cannot be read.
        """
        as_text = text_format_of(path)
        model = self._parse(path) if as_text is None else read_text(path, as_text)
        assert model is not None
        try:
            _load_linked(model, path)
            onnx.load_external_data_for_model(model, str(path.parent))
        except (OSError, ValueError, onnx.checker.ValidationError) as err:
            raise ModelError(
                f"the external weights of '{path}' cannot be read: {err}", value=str(path)
            ) from err
        return import_onnx(model, path.stem, shapes)

    def _parse(self, path: Path) -> onnx.ModelProto | None:
        try:
            model = onnx.load_model(str(path), format="protobuf", load_external_data=False)
        except DecodeError:
            return None
        return model if model.ir_version > 0 and len(model.graph.output) > 0 else None


def _load_linked(model: onnx.ModelProto, path: Path) -> None:
    """Load weights whose files are links, as a cache of downloads has them, which onnx refuses.

    What they lead to lies beside the model, or beside what the model's own name leads to: nothing
    else on the machine can be read by a model that says so.
    """
    own = path.parent.resolve()
    allowed = {own, path.resolve().parent}
    for tensor in weights_of(model):
        if not uses_external_data(tensor):
            continue
        place = next(one for one in tensor.external_data if one.key == "location")
        named = path.parent / place.value
        if not named.is_symlink() or Path(place.value).is_absolute():
            continue
        target = named.resolve()
        if target.is_file() and (target.parent in allowed or own in target.parents):
            place.value = target.name
            load_external_data_for_tensor(tensor, str(target.parent))
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]


def import_onnx(model: onnx.ModelProto, name: str, shapes: Shapes) -> ImportedModel:
    """The model of an ONNX graph, which is not changed.

    Parameters
    ----------
    model : onnx.ModelProto
        With its weights.
    name : str
        The model's.
    shapes : mapping of str to sequence of int
        Concrete shapes of inputs with open dimensions.

    Returns
    -------
    ImportedModel
        Under the graph's own names.

    Raises
    ------
    ModelError
        For operators or nodes that cannot be imported; all of them are named.
    ShapeError
        See :func:`collage.importers.onnx.shapes.concretize`.

    Examples
    --------
    >>> net = onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[batch, 8] x) => (float[batch, 8] y) { y = Relu(x) }'''
    ... )
    >>> import_onnx(net, "net", {"x": (4, 8)}).outputs
    (TensorInfo(shape=(4, 8), dtype='float32', name='y'),)
    """
    try:
        return _import_whole(model, name, shapes)
    except CollageError:
        raise
    except Exception:
        require_text(model)
        require_standard(model)
        raise


def _import_whole(model: onnx.ModelProto, name: str, shapes: Shapes) -> ImportedModel:
    """As :func:`import_onnx`, of a model whose texts are texts."""
    require_whole(model)
    model = in_order(model)
    model = without_maps(without_options(fill_in_sparse(model)))
    model = widen_narrow(with_numbers_for_labels(model))
    try:
        return _import_straight(model, name, shapes, at_any_price=False)
    except DataDecideError as err:
        _log.info("cut into parts: %s", err)
    return import_course(_at_least(model, _OLDEST_OPSET), name, shapes, _part)


def _part(model: onnx.ModelProto, name: str, at_any_price: bool) -> ImportedModel:
    """A part of a model that is cut."""
    return _import_straight(model, name, {}, at_any_price=at_any_price)


def _import_straight(
    model: onnx.ModelProto, name: str, shapes: Shapes, *, at_any_price: bool
) -> ImportedModel:
    """As :func:`import_onnx`, as one straight line."""
    small, weights = detach_weights(model)
    inputs = real_inputs(small.graph)
    concretize(inputs, shapes)
    input_names = [value.name for value in inputs]
    require_tensors(small.graph.output)
    small.graph.input.extend(weight_inputs(weights))
    expanded = fold(expand_functions(_at_least(small, _OLDEST_OPSET)))
    small = _straightened(expanded, at_any_price=at_any_price)
    list_axes(small.graph)
    drop_unused_outputs(small)
    require_supported(small)
    # Without the weights: ONNX's inference refuses a graph of more than 2 GB.
    require_element_types(small)
    attach_weights(small, weights)
    choosers = count_rows(small)

    def imported() -> tuple[ImportedModel, dict[str, tuple[int, ...]]]:
        importer = CheckedImporter()
        with warnings.catch_warnings():
            # Renamed inputs and the like; the names are given back here.
            warnings.simplefilter("ignore")
            mod = importer.convert(small)
        described = from_module(
            mod,
            name=name,
            source_format="onnx",
            input_names=input_names,
            output_names=importer.output_names,
        )
        return described, importer.shapes()

    found, extents = imported()
    first = len(found.outputs) - len(choosers)
    chosen = []
    for place, chooser in enumerate(choosers):
        with room_for_one_more(chooser):
            label = f"{chooser.op_type} ({node_label(chooser)})"
            more, others = imported()
        require_undecided(label, small, extents, others)
        chosen.append(ChosenRows(label, first + place, more))
    return replace(found, chosen=tuple(chosen))


def _straightened(model: onnx.ModelProto, *, at_any_price: bool) -> onnx.ModelProto:
    """Without control flow, and without what is known, which onnxruntime may not have folded."""
    flat = fold_known(model)
    straight = flatten(flat, at_any_price=at_any_price)
    return flat if straight is flat else fold_known(fold(expand_functions(straight)))


def _at_least(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    if not versions or versions[0] >= version:
        return model
    try:
        return onnx.version_converter.convert_version(model, version)
    except (RuntimeError, onnx.version_converter.ConvertError) as err:
        raise ModelError(
            f"the model uses opset {versions[0]}, which cannot be converted to {version}: "
            f"{telling_line(err)}",
            value=versions[0],
        ) from err
