"""A model's functions for every bucket of its shapes, and what may be padded between them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from collage.backends.contract.errors import ModelError, ShapeError
from collage.backends.devices import DeviceKind
from collage.bundle import FunctionEntry, Padding, Variant
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.importers import ImportedModel, load_model
from collage.pipeline.imported import Imported, prepare
from collage.pipeline.shapes.buckets import Bucket, Buckets
from collage.pipeline.shapes.operands import UnprovenError
from collage.pipeline.shapes.padding import PaddedAxes, padded_axes

MOST_SIZES = 64
"""Extents between buckets for which padding is proven: each takes an import of the model."""


@dataclass(frozen=True)
class Bucketed:
    """A function for all buckets.

    Attributes
    ----------
    name : str
        As the model calls it.
    variants : tuple of Imported
        One for each bucket, or the only one; each has a name of its own, the largest is the last.
    padding : Padding or None
        What may be padded.
    remark : str
        What the user should know of that.
    """

    name: str
    variants: tuple[Imported, ...]
    padding: Padding | None = None
    remark: str = ""

    @property
    def entry(self) -> FunctionEntry:
        """As a bundle's manifest lists it."""
        variants = tuple(Variant(v.function, v.inputs, v.outputs) for v in self.variants)
        return FunctionEntry(self.name, variants, self.padding, self.variants[-1].signature)


def import_buckets(
    model: Any,
    device: DeviceKind,
    buckets: Buckets,
    *,
    allow_code: bool = False,
    progress: ProgressCallback = ignore,
) -> list[Bucketed]:
    """Import a model once for each bucket, and find out what may be padded.

    Parameters
    ----------
    model, device, allow_code, progress
        As :func:`collage.pipeline.imported.import_model` takes them.
    buckets : Buckets
        Of its shapes.

    Raises
    ------
    ModelError, ShapeError
        As :func:`collage.pipeline.imported.import_model` does.

    Examples
    --------
    >>> import onnx.parser
    >>> from collage.backends.devices import CPU
    >>> from collage.pipeline.shapes.buckets import buckets_of
    >>> net = onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[n, 8] x) => (float[n, 8] y) { y = Relu(x) }'''
    ... )
    >>> (main,) = import_buckets(net, CPU, buckets_of({"x": ["1:4", 8]}))
    >>> [variant.function for variant in main.variants], main.padding.sizes
    (['main_1', 'main_2', 'main_4'], (3,))
    """
    found = _Models(model, buckets, allow_code)
    for number, bucket in enumerate(buckets.buckets):
        text = ", ".join(f"{name} {list(shape)}" for name, shape in bucket.shapes.items())
        progress(ProgressEvent("import", number, len(buckets.buckets), text))
        found.at(bucket)
    progress(ProgressEvent("import", len(buckets.buckets), len(buckets.buckets), "all buckets"))
    functions = found.at(buckets.buckets[-1])
    return [_bucketed(name, found, buckets, device, set(functions)) for name in functions]


class _Models:
    """The model for one set of shapes after another, by function."""

    def __init__(self, model: Any, buckets: Buckets, allow_code: bool) -> None:
        self._model = model
        self._allow_code = allow_code
        self._kept = {bucket.extents for bucket in buckets.buckets}
        self._found: dict[tuple[int, ...], dict[str, ImportedModel]] = {}

    def at(self, bucket: Bucket) -> Mapping[str, ImportedModel]:
        """Its functions; those of buckets are kept, what is only looked at is not."""
        if bucket.extents not in self._found:
            loaded = load_model(self._model, shapes=bucket.shapes, allow_code=self._allow_code)
            functions = {one.function: one for one in (loaded, *loaded.others)}
            if bucket.extents not in self._kept:
                return functions
            self._found[bucket.extents] = functions
        return self._found[bucket.extents]


def _bucketed(
    name: str, found: _Models, buckets: Buckets, device: DeviceKind, names: set[str]
) -> Bucketed:
    variants: dict[tuple[object, ...], Imported] = {}
    for bucket in buckets.buckets:
        loaded = found.at(bucket)[name]
        shapes = tuple(info.shape for info in loaded.inputs)
        if shapes not in variants:
            label = f"{name}_{'x'.join(map(str, bucket.extents))}"
            while label in names:
                label += "_"
            variants[shapes] = replace(prepare(loaded, device), function=label)
    if len(variants) == 1:
        (only,) = variants.values()
        return Bucketed(name, (replace(only, function=name),))
    reasons = []
    for index in range(len(buckets.varying)):
        try:
            padding = _padding(name, found, buckets, index)
        except (UnprovenError, ModelError, ShapeError) as err:
            reasons.append(str(err))
        else:
            if padding is not None:
                return Bucketed(name, tuple(variants.values()), padding, _padded(padding))
    remark = f"only the shapes of buckets are taken: {'; '.join(reasons)}" if reasons else ""
    return Bucketed(name, tuple(variants.values()), None, remark)


def _padding(name: str, found: _Models, buckets: Buckets, index: int) -> Padding | None:
    """The padding of one dimension that varies; None where there is nothing between buckets.

    Raises
    ------
    UnprovenError
        When it is not known to change nothing for some extent.
    """
    extents = buckets.varying[index]
    sizes = [size for size in range(extents[0], extents[-1]) if size not in extents]
    if len(sizes) > MOST_SIZES:
        raise UnprovenError(
            f"there are {len(sizes)} extents between the buckets, and padding is proven for at "
            f"most {MOST_SIZES}"
        )
    others = [e if i != index else (0,) for i, e in enumerate(buckets.varying)]
    proofs: set[PaddedAxes] = set()
    for size, rest in itertools.product(sizes, itertools.product(*others)):
        bucket = next(extent for extent in extents if extent > size)
        at = (_with(rest, index, extent) for extent in (bucket, size))
        large, small = (found.at(buckets.at(place))[name] for place in at)
        proofs.add(padded_axes(large, small, (bucket, size)))
        if len(proofs) > 1:
            raise UnprovenError("other axes have the extent for other shapes")
    if not proofs:
        return None
    (axes,) = proofs
    return Padding(axes.inputs, axes.outputs, tuple(sizes))


def _with(extents: Sequence[int], index: int, extent: int) -> tuple[int, ...]:
    return (*extents[:index], extent, *extents[index + 1 :])


def _padded(padding: Padding) -> str:
    return (
        f"shapes between buckets are padded: every operator was seen to compute each of "
        f"{len(padding.sizes)} extents' slices alone"
    )
