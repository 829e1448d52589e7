"""A model in parts: the entry to what is cut."""

from __future__ import annotations

import onnx
from onnx import helper

from collage.importers._base import ImportedModel, Shapes
from collage.importers.courses.values import Value
from collage.importers.courses.whole import whole_model
from collage.importers.functions import MAIN
from collage.importers.onnx.courses.cutter import Cutter, Graph
from collage.importers.onnx.courses.parts import Importing, Parts
from collage.importers.onnx.courses.values import Constants, body_results
from collage.importers.onnx.fold import detach_weights
from collage.importers.onnx.functions import expand_functions
from collage.importers.onnx.shapes import concretize, real_inputs
from collage.tensor_info import TensorInfo


def import_course(
    model: onnx.ModelProto, name: str, shapes: Shapes, importing: Importing
) -> ImportedModel:
    """A model in parts, and what calls them.

    Parameters
    ----------
    model : onnx.ModelProto
        With its weights; not changed.
    name : str
        The model's.
    shapes : mapping of str to sequence of int
        Concrete shapes of inputs with open dimensions.
    importing : callable
        Imports a straight-line graph, or raises :class:`DataDecideError`.

    Returns
    -------
    ImportedModel
        The first part, the other ones behind it; its ``course`` says what the model is.

    Raises
    ------
    ModelError, ShapeError
        What cannot be cut, or imported.

    Examples
    --------
    Who loads a model comes here where it cannot be one straight line:

    >>> import onnx.parser
    >>> from collage.importers import load_model
    >>> net = onnx.parser.parse_model(
    ...     '''<ir_version: 9, opset_import: ["" : 17]>
    ...     net (int64 n, float[3] x, bool go) => (float[3] y) {
    ...         y = Loop (n, go, x) <body = step (int64 i, bool c, float[3] h)
    ...             => (bool c2, float[3] h2) { c2 = Identity(c) h2 = Exp(h) }>
    ...     }'''
    ... )
    >>> found = load_model(net)
    >>> [part.function for part in (found, *found.others)]
    ['main_1', 'body_2']
    """
    small, weights = detach_weights(model)
    inputs = real_inputs(small.graph)
    concretize(inputs, shapes)
    small = expand_functions(small)
    constants = Constants({**{t.name: t for t in small.graph.initializer}, **weights})
    parts = Parts(small, constants, importing)
    cutter = Cutter(parts, constants)
    scope = {
        value.name: Value(
            tuple(int(dim.dim_value) for dim in value.type.tensor_type.shape.dim),
            str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)),
        )
        for value in inputs
    }
    results = body_results(small.graph)
    found = cutter.cut(Graph(list(small.graph.node), results, MAIN, outermost=True), dict(scope))
    known = {
        key: array for key in found.region.used() if (array := constants.array(key)) is not None
    }
    known |= {
        count: array
        for value in found.values
        for _, count in value.counts
        if (array := constants.array(count)) is not None
    }
    return whole_model(
        name,
        [TensorInfo(value.shape, value.dtype, key) for key, value in scope.items()],
        dict(zip(results, found.values, strict=True)),
        found.region,
        parts,
        known,
        remarks=cutter.remarks,
    )
