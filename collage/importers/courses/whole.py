"""A model in parts as what an importer gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from collage.backends.contract.errors import ModelError
from collage.course import Course, Region
from collage.importers._base import ImportedModel
from collage.importers.courses.kept import KeptParts
from collage.importers.courses.values import Value
from collage.structure import Signature
from collage.tensor_info import TensorInfo


def whole_model(
    name: str,
    inputs: Sequence[TensorInfo],
    results: Mapping[str, Value],
    region: Region,
    parts: KeptParts,
    constants: Mapping[str, NDArray[Any]],
    *,
    signature: Signature | None = None,
    remarks: Sequence[str] = (),
) -> ImportedModel:
    """The first part of a model, the other ones behind it; its ``course`` says what the model is.

    Parameters
    ----------
    name : str
        The model's.
    inputs : sequence of TensorInfo
        What it takes.
    results : mapping of str to Value
        What it gives, by the names that the model has for it, in the order of the region's results.
    region : Region
        What it does.
    parts : KeptParts
        What that calls; those that it does not call are left out.
    constants : mapping of str to array
        What is known beforehand, and more.
    signature : Signature, optional
        How inputs and outputs lie in dicts, tuples and such.
    remarks : sequence of str
        What the user should know.

    Returns
    -------
    ImportedModel
        Ready to be searched part by part.

    Raises
    ------
    ModelError
        When nothing is computed.
    """
    called = dict.fromkeys(region.parts())
    if not called:
        raise ModelError(f"'{name}' computes nothing: its inputs are chosen among", value=name)
    counts = dict.fromkeys(count for value in results.values() for _, count in value.counts)
    infos = [TensorInfo(value.shape, value.dtype, key) for key, value in results.items()]
    whole = Region(region.steps, (*region.results, *counts))
    course = Course(
        tuple(inputs),
        (*infos, *(TensorInfo((1,), "int64", count) for count in counts)),
        whole,
        {key: constants[key] for key in whole.used() if key in constants},
        tuple(
            (
                len(infos) + place,
                tuple(
                    (index, axis)
                    for index, value in enumerate(results.values())
                    for axis, by in value.counts
                    if by == count
                ),
            )
            for place, count in enumerate(counts)
        ),
        tuple(dict.fromkeys(remarks)),
        signature,
    )
    first, *others = (parts.imported[part] for part in called)
    return replace(first, name=name, others=tuple(others), course=course)
