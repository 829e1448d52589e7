"""Rows of which the data say how many there are: where they come out, to be cut there.

The model computes as many as there may be. That is right where every operator computes each row
from the same row of its operands alone, which is proven as it is for axes that are padded.
"""

from __future__ import annotations

from collage.backends.contract.errors import ModelError
from collage.backends.relax.static_shape import tensor_shape
from collage.bundle.signature import MAIN, Rows
from collage.importers import ImportedModel
from collage.pipeline.shapes.operands import UnprovenError
from collage.pipeline.shapes.padding import separate_axes
from collage.rewrite import flat_bindings


def rows_of(model: ImportedModel) -> tuple[Rows, ...]:
    """Which outputs of a model are cut, and by what.

    Raises
    ------
    ModelError
        When something else than single rows is computed from them; names the operator that chose
        them, and the one that mixes them.

    Examples
    --------
    >>> import onnx.parser
    >>> from collage.importers import load_model
    >>> net = onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[4] x) => (int64[1, n] y) { y = NonZero(x) }'''
    ... )
    >>> rows_of(load_model(net))
    (Rows(count=1, outputs=((0, 1),)),)
    """
    found = []
    for chosen in model.chosen:
        if chosen.more is None:
            found.append(Rows(chosen.count, chosen.outputs))
            continue
        try:
            axes = separate_axes(chosen.more, model, _extents(chosen.more, model))
        except UnprovenError as err:
            raise ModelError(
                f"{chosen.label} chooses as many rows as the data say, and what follows does not "
                f"compute each of them alone: {err}. Cut the model there{_how(model)}, and compute "
                "the rest outside",
                value=chosen.label,
            ) from err
        found.append(Rows(chosen.count, axes.outputs))
    return tuple(found)


def _how(model: ImportedModel) -> str:
    return ", with onnx.utils.extract_model" if model.source_format == "onnx" else ""


def _extents(more: ImportedModel, model: ImportedModel) -> tuple[int, int]:
    """How many rows there may be, in either: where they are chosen, shapes differ first."""
    pairs = zip(*(flat_bindings(one.mod[MAIN]) for one in (more, model)), strict=False)
    for (var, _), (other, _) in pairs:
        one, two = tensor_shape(var), tensor_shape(other)
        if one is not None and two is not None and one != two:
            return one[0], two[0]
    return 1, 1  # Nothing is computed from them.
