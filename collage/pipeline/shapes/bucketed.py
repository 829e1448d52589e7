"""A model's functions for every bucket of its shapes, and what may be padded between them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from collage.backends.contract.errors import CollageError, ShapeError
from collage.backends.devices import DeviceKind
from collage.bundle import FunctionEntry, Padding, Variant
from collage.bundle.signature import Rows
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.cost.workload.shared_weights import MappedWeights
from collage.course import Course
from collage.importers import ImportedModel, load_model
from collage.pipeline.imported import Imported, prepare
from collage.pipeline.shapes.buckets import Bucket, Buckets
from collage.pipeline.shapes.padding import PaddedAxes, padded_axes
from collage.state import with_names

MOST_SIZES = 64
"""Shapes between buckets for which padding is proven: each takes an import of the model."""


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
    course : Course or None
        Where data choose what runs: how the variants, which are parts of the function then, are
        called.

    Examples
    --------
    >>> from collage.backends.devices import CPU
    >>> from collage.pipeline.imported import import_model
    >>> from collage.testing import graph
    >>> from tvm.relax import op
    >>> model = import_model(graph([(8,)], lambda _, x: op.exp(x)), CPU)
    >>> entry = Bucketed("main", (model,)).entry
    >>> entry.name, [given.shape for given in entry.variants[0].inputs]
    ('main', [(8,)])
    """

    name: str
    variants: tuple[Imported, ...]
    padding: Padding | None = None
    remark: str = ""
    course: Course | None = None

    def over(self, weights: MappedWeights) -> Bucketed:
        """The same with large weights in files."""
        return replace(self, variants=tuple(one.over(weights) for one in self.variants))

    @property
    def entry(self) -> FunctionEntry:
        """As a bundle's manifest lists it."""
        if self.course is not None:
            signature = self.course.signature
            state = signature.state if signature is not None else ()
            inputs = with_names(self.course.inputs, state)
            whole = Variant(self.name, inputs, self.course.outputs)
            rows = tuple(Rows(*counted) for counted in self.course.counts)
            return FunctionEntry(self.name, (whole,), signature=signature, rows=rows)
        variants = tuple(Variant(v.function, v.inputs, v.outputs) for v in self.variants)
        last = self.variants[-1]
        # Of what differs between buckets, the kernels take the nearest.
        places = tuple(p for p in last.places if all(p in v.places for v in self.variants))
        return FunctionEntry(self.name, variants, self.padding, last.signature, last.rows, places)


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

    Returns
    -------
    list of Bucketed
        One per public function, ``main`` first.

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
    names = list(found.at(buckets.buckets[-1]))
    variants = {name: _variants(name, found, buckets, device, set(names)) for name in names}
    proofs = _proofs([name for name in names if len(variants[name]) > 1], found, buckets)
    return [_bucketed(name, variants[name], proofs.get(name)) for name in names]


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
            if loaded.course is not None:
                raise ShapeError(
                    f"data choose what '{loaded.name}' computes; optimize it for one set of shapes "
                    "at a time",
                    value=loaded.name,
                )
            functions = {one.function: one for one in (loaded, *loaded.others)}
            if bucket.extents not in self._kept:
                return functions
            self._found[bucket.extents] = functions
        return self._found[bucket.extents]


def _variants(
    name: str, found: _Models, buckets: Buckets, device: DeviceKind, names: set[str]
) -> tuple[Imported, ...]:
    """A function once for each bucket that makes a difference to it."""
    variants: dict[tuple[object, ...], Imported] = {}
    for bucket in buckets.buckets:
        loaded = found.at(bucket)[name]
        shapes = tuple(info.shape for info in loaded.inputs)
        if shapes not in variants:
            label = f"{name}_{'x'.join(map(str, bucket.extents))}"
            while label in names:
                label += "_"
            variants[shapes] = replace(prepare(loaded, device), function=label)
    return tuple(variants.values())


def _bucketed(name: str, variants: tuple[Imported, ...], proof: _Proof | None) -> Bucketed:
    if len(variants) == 1:
        return Bucketed(name, (replace(variants[0], function=name),))
    if len({variant.rows for variant in variants}) > 1:
        raise ShapeError(
            f"'{name}' gives the rows that its data choose elsewhere for other shapes; optimize "
            "for one shape at a time",
            value=name,
        )
    padding = proof.padding if proof else None
    if padding is not None:
        return Bucketed(name, variants, padding, _padded(padding))
    reasons = proof.reasons if proof else []
    remark = f"only the shapes of buckets are taken: {'; '.join(reasons)}" if reasons else ""
    return Bucketed(name, variants, None, remark)


@dataclass
class _Proof:
    """What is known of a function's padding: along which dimension, or why along none."""

    padding: Padding | None = None
    reasons: list[str] = field(default_factory=list)


def _proofs(names: Sequence[str], found: _Models, buckets: Buckets) -> dict[str, _Proof]:
    """The padding of each function along the first dimension for which it is proven."""
    proofs = {name: _Proof() for name in names}
    for index in range(len(buckets.varying)):
        missing = [name for name in names if proofs[name].padding is None]
        for name, answer in _along(index, missing, found, buckets).items():
            if isinstance(answer, Padding):
                proofs[name].padding = answer
            else:
                proofs[name].reasons.append(answer)
    return proofs


def _along(
    index: int, names: Sequence[str], found: _Models, buckets: Buckets
) -> dict[str, Padding | str]:
    """The padding of one dimension that varies, or why there is none; nothing is said where nothing
    lies between buckets.

    The model is imported once for each place between them, whatever the number of functions.
    """
    extents = buckets.varying[index]
    sizes = buckets.between(index)
    others = [e if i != index else (0,) for i, e in enumerate(buckets.varying)]
    places = len(sizes) * math.prod(map(len, others))
    if places > MOST_SIZES:
        reason = (
            f"there are {places} shapes between the buckets, and padding is proven for at "
            f"most {MOST_SIZES}"
        )
        return dict.fromkeys(names, reason)
    refused: dict[str, str] = {}
    axes: dict[str, PaddedAxes] = {}
    for size, rest in itertools.product(sizes, itertools.product(*others)):
        proving = [name for name in names if name not in refused]
        if not proving:
            break
        bucket = next(extent for extent in extents if extent > size)
        at = [_with(rest, index, extent) for extent in (bucket, size)]
        try:
            large, small = (found.at(buckets.at(place)) for place in at)
        except CollageError as err:
            return {**dict.fromkeys(proving, str(err)), **refused}
        for name in proving:
            try:
                proven = padded_axes(large[name], small[name], (bucket, size))
            except CollageError as err:
                refused[name] = str(err)
                continue
            if axes.setdefault(name, proven) != proven:
                refused[name] = "other axes have the extent for other shapes"
    paddings = {
        name: Padding(found.inputs, found.outputs, tuple(sizes))
        for name, found in axes.items()
        if name not in refused
    }
    return {**paddings, **refused}


def _with(extents: Sequence[int], index: int, extent: int) -> tuple[int, ...]:
    return (*extents[:index], extent, *extents[index + 1 :])


def _padded(padding: Padding) -> str:
    return (
        f"shapes between buckets are padded: every operator was seen to compute each of "
        f"{len(padding.sizes)} extents' slices alone"
    )
