"""ONNX models for tests, run here and by an independent program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from collage.backends.devices.cpu_flags import sums_bytes_in_32_bits
from collage.bundle.signature import Rows
from collage.cost.reference import evaluate
from collage.course import Choose, Fail, Region, Repeat, Run, Step
from collage.importers import ImportedModel, load_model
from collage.normalize import normalize
from tests.collage_tests.normalize.test_models import by_onnxruntime

__all__ = [
    "along_course",
    "by_course",
    "by_importer",
    "by_onnxruntime",
    "by_reference",
    "byte_weights",
    "cut_rows",
    "fresh",
    "model_of",
    "require_same",
]

Array = NDArray[Any]


def fresh(*shape: int) -> Array:
    return np.random.default_rng().uniform(-1, 1, shape).astype("float32")


def by_reference(model: onnx.ModelProto, given: Mapping[str, Array]) -> list[Array]:
    """The standard's own evaluator."""
    return list(ReferenceEvaluator(model).run(None, dict(given)))


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
    beyond: str = "",
) -> onnx.ModelProto:
    """A model of these nodes; inputs are as the arrays that it is going to be given.

    With nodes of a domain beyond the standard, which inference does not know, results are declared
    as nothing but tensors.
    """
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [_info(name, array) for name, array in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    if beyond:
        opsets.append(helper.make_opsetid(beyond, 1))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def _info(name: str, array: Array) -> onnx.ValueInfoProto:
    dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, dtype, array.shape)


def by_importer(model: onnx.ModelProto, given: Mapping[str, Array]) -> list[Array]:
    """What the imported and normalized module answers, evaluated in numpy as searches do it."""
    return [np.asarray(x) for x in evaluate(normalize(load_model(model).mod), [*given.values()])]


def by_course(model: onnx.ModelProto, given: Mapping[str, Array]) -> list[Array]:
    """What a model in parts answers."""
    return along_course(load_model(model), given)


def along_course(loaded: ImportedModel, given: Mapping[str, Array]) -> list[Array]:
    """What an imported model in parts answers: steps followed here, parts evaluated as searches do
    it."""
    assert loaded.course is not None
    parts = {part.function: normalize(part.mod) for part in (loaded, *loaded.others)}

    def follow(region: Region, known: Mapping[str, Array]) -> list[Array]:
        there = dict(known)
        for step in region.steps:
            there.update(zip(step.outputs, results(step, there), strict=True))
        return [there[name] for name in region.results]

    def results(step: Step, there: Mapping[str, Array]) -> list[Array]:
        match step:
            case Run():
                found = evaluate(parts[step.part], [there[name] for name in step.inputs])
                return [np.asarray(x) for x in found]
            case Choose():
                return follow(step.then if there[step.condition] else step.otherwise, there)
            case Repeat():
                states = [there[name] for name in step.initial]
                while states[0]:
                    inner = dict(zip(step.states, states, strict=True))
                    states = follow(step.body, {**there, **inner})
                return states
            case Fail():
                raise RuntimeError(step.reason)

    found = follow(loaded.course.region, {**loaded.course.constants, **given})
    return cut_rows([Rows(*counted) for counted in loaded.course.counts], found)


def cut_rows(rows: Sequence[Rows], results: Sequence[Array]) -> list[Array]:
    """Results as a bundle gives them: with the rows that there are, without the numbers of them."""
    found = {index: np.asarray(result) for index, result in enumerate(results)}
    for one in rows:
        count = int(found.pop(one.count).item())
        for index, axis in one.outputs:
            assert found[index].shape[axis] >= count
            found[index] = np.take(found[index], np.arange(count), axis)
    return [*found.values()]


def byte_weights(kind: str, *shape: int) -> Array:
    """Random weights in bytes, that onnxruntime sums exactly on this processor.

    Without VNNI its kernels add pairs of products in 16 bits, so signed weights have half of the
    range there, as its own quantizer's ``reduce_range`` gives them.

    Parameters
    ----------
    kind : str
        ``int8`` or ``uint8``.
    shape : int
        Extents.
    """
    limits = np.iinfo(kind)
    low, high = int(limits.min), int(limits.max)
    if kind == "int8" and not sums_bytes_in_32_bits():
        low, high = low // 2, high // 2
    return np.random.default_rng().integers(low, high, shape, kind, endpoint=True)


def require_same(ours: Sequence[Array], wanted: Sequence[Array], tolerance: float = 1e-4) -> None:
    """Fail where shapes, element types or values differ.

    Parameters
    ----------
    ours, wanted : sequence of numpy.ndarray
        In the same order.
    tolerance : float
        Of floating-point numbers, absolute, and relative to the largest one.
    """
    assert len(ours) == len(wanted)
    for found, expected in zip(ours, wanted, strict=True):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        if found.dtype.kind in "biu":
            assert np.array_equal(found, expected)
        elif found.size:
            scale = max(1.0, float(np.abs(expected).max()))
            assert float(np.abs(found - expected).max()) <= tolerance * scale
