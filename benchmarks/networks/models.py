"""The networks that are measured and compared: real architectures, random weights, no downloads.

The nine light models ship with the ``onnx`` package as graphs whose every weight is 0.02, so each
of their outputs is one constant and any comparison on them passes. :func:`light_model` refills the
weights so that activations keep their scale through the depth and outputs depend on the input.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from benchmarks.networks.tiny import tiny_bert, tiny_mobilenet

__all__ = [
    "before_softmax",
    "input_shapes",
    "light_model",
    "light_model_names",
    "random_inputs",
    "refill_weights",
    "tiny_bert",
    "tiny_mobilenet",
]

Array = NDArray[Any]

LIGHT_PREFIX = "light_"

# A residual branch adds its variance to the trunk's. At unit gain 16 blocks would multiply it by
# 2^16; trained networks keep the branch small, so do we. Where the trunk is projected too, the two
# share the variance.
_RESIDUAL_GAIN = 0.3
_PROJECTED_GAIN = 0.8
_UNRECTIFIED = {"BatchNormalization", "Conv", "Gemm", "Add"}


def light_model_names() -> tuple[str, ...]:
    """Names of the nine light models in the ``onnx`` package, for :func:`light_model`."""
    return tuple(
        sorted(path.stem.removeprefix(LIGHT_PREFIX) for path in _light_dir().glob("light_*.onnx"))
    )


def light_model(name: str, seed: int = 0) -> ModelProto:
    """One of the ``onnx`` package's light models with seeded random weights.

    Only the weights change (``ConstantOfShape`` nodes become initializers of the same name) and
    the file's format version, so that initializers are constants instead of overridable inputs.

    Parameters
    ----------
    name : str
        One of :func:`light_model_names`.
    seed : int
        The same seed gives the same bytes.

    Returns
    -------
    onnx.ModelProto
        float32, batch 1, one input of shape (1, 3, 224, 224).

    Raises
    ------
    KeyError
        For a name that is not among the light models.
    """
    if name not in light_model_names():
        raise KeyError(f"no light model '{name}'; there are: {', '.join(light_model_names())}")
    model = onnx.load(_light_dir() / f"{LIGHT_PREFIX}{name}.onnx")
    refill_weights(model, seed)
    return model


def refill_weights(model: ModelProto, seed: int) -> None:
    """Replace, in place, every float32 weight by random values that suit its role.

    Convolution and matrix weights are He-scaled by fan-in (He et al. 2015, section 2.2; half the
    variance where no ReLU went before), the last matrix and biases smaller, batch-norm scales and
    variances are near 1, means near 0.
    """
    graph = model.graph
    random = np.random.default_rng(seed)
    kept = {i.name: i for i in graph.initializer if not _is_weight(i)}
    shapes = {i.name: tuple(i.dims) for i in graph.initializer if i.name not in kept}
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in kept:
            shape = numpy_helper.to_array(kept[node.input[0]])
            shapes[node.output[0]] = tuple(int(d) for d in shape)
        else:
            nodes.append(node)
    links = _Links(nodes)
    weights = [
        numpy_helper.from_array(_weight(name, shape, links, random), name)
        for name, shape in shapes.items()
        if name in links.users
    ]
    constants = [tensor for name, tensor in kept.items() if name in links.users]
    inputs = [i for i in graph.input if i.name not in kept and i.name not in shapes]
    _replace(graph.node, nodes)
    _replace(graph.initializer, [*weights, *constants])
    _replace(graph.input, inputs)
    # Before version 4 every initializer had to be an input too, which a caller may override.
    model.ir_version = max(model.ir_version, 8)


def before_softmax(model: ModelProto) -> ModelProto:
    """A copy that returns what goes into the final softmax, for comparing outputs.

    A softmax over a thousand classes squeezes differences below any tolerance. A model whose
    output is not a softmax is returned as it is.
    """
    producers = {output: node for node in model.graph.node for output in node.output}
    last = producers.get(model.graph.output[0].name)
    if last is None or last.op_type != "Softmax":
        return model
    result = ModelProto()
    result.CopyFrom(model)
    nodes = [node for node in result.graph.node if node.output[0] != last.output[0]]
    _replace(result.graph.node, nodes)
    result.graph.output[0].name = last.input[0]  # a softmax keeps shape and dtype
    return result


def input_shapes(model: ModelProto) -> dict[str, tuple[int, ...]]:
    """Shape of each input by name; inputs that are initializers are left out.

    Raises
    ------
    ValueError
        When a dimension is open.
    """
    constants = {i.name for i in model.graph.initializer}
    shapes: dict[str, tuple[int, ...]] = {}
    for value in model.graph.input:
        if value.name in constants:
            continue
        dims = value.type.tensor_type.shape.dim
        if any(not d.HasField("dim_value") for d in dims):
            raise ValueError(f"input '{value.name}' has open dimensions")
        shapes[value.name] = tuple(d.dim_value for d in dims)
    return shapes


def random_inputs(model: ModelProto, seed: int, vocabulary: int = 1000) -> dict[str, Array]:
    """Seeded random inputs by name.

    Images (rank 4) are coarse blobs under fine noise: networks that average over all positions
    would answer white noise with nearly the same output whatever the seed. Integer inputs are token
    numbers below ``vocabulary``; masks are ones, then an eighth of zeros for padding.
    """
    random = np.random.default_rng(seed)
    shapes = input_shapes(model)
    values: dict[str, Array] = {}
    for value in model.graph.input:
        if value.name not in shapes:
            continue
        shape = shapes[value.name]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if np.issubdtype(dtype, np.integer):
            high = 2 if "type" in value.name else vocabulary
            array: Array = random.integers(0, high, shape)
            if "mask" in value.name:
                array = np.broadcast_to(np.arange(shape[-1]) < shape[-1] * 7 / 8, shape)
        elif len(shape) == 4:
            array = _image(shape, random)
        else:
            array = random.standard_normal(shape)
        values[value.name] = array.astype(dtype)
    return values


def _light_dir() -> Path:
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def _is_weight(tensor: TensorProto) -> bool:
    """Whether an initializer is a weight: shapes are integers, and bounds of a clip scalars."""
    return tensor.data_type == TensorProto.FLOAT and len(tensor.dims) > 0


def _replace(field: object, values: Iterable[object]) -> None:
    """Set a repeated protobuf field; ``values`` may be drawn from the field itself."""
    kept = list(values)
    del field[:]  # type: ignore[attr-defined]
    field.extend(kept)  # type: ignore[attr-defined]


class _Links:
    """Who makes and who reads each value."""

    def __init__(self, nodes: Iterable[NodeProto]) -> None:
        self.maker: dict[str, NodeProto] = {}
        self.users: dict[str, list[tuple[NodeProto, int]]] = {}
        for node in nodes:
            for index, name in enumerate(node.input):
                self.users.setdefault(name, []).append((node, index))
            for name in node.output:
                self.maker[name] = node

    def reader(self, node: NodeProto, kind: str) -> NodeProto | None:
        """The node of this kind that reads the first output of ``node``, if there is one."""
        readers = (user for user, _ in self.users.get(node.output[0], ()))
        return next((user for user in readers if user.op_type == kind), None)

    def made_by(self, name: str, kinds: set[str]) -> bool:
        """Whether a node of one of these kinds makes the value."""
        return name in self.maker and self.maker[name].op_type in kinds


def _weight(
    name: str, shape: tuple[int, ...], links: _Links, random: np.random.Generator
) -> NDArray[np.float32]:
    """Random values for one weight, by what its first reader does with it."""
    node, index = links.users[name][0]
    if node.op_type == "Unsqueeze":  # per-channel scale and shift reach Mul and Add through it
        node, index = links.users[node.output[0]][0]
    if node.op_type in ("Conv", "Gemm") and index == 1:
        rectified = not links.made_by(node.input[0], _UNRECTIFIED)
        gain = 2.0 if rectified else 1.0
        array = random.standard_normal(shape, np.float32) * math.sqrt(gain / _fan_in(node, shape))
        if links.reader(node, "Add") and len(links.users[node.output[0]]) == 1:
            array *= np.float32(_RESIDUAL_GAIN)
        if links.reader(node, "Softmax"):
            array *= np.float32(
                0.5
            )  # logits of a few units: a softmax that is neither flat nor saturated
    elif (node.op_type, index) in (("BatchNormalization", 1), ("Mul", 1)):
        array = random.uniform(0.8, 1.2, shape)
        if residual := links.reader(node, "Sum"):
            projected = all(links.made_by(i, {"BatchNormalization"}) for i in residual.input)
            array *= _PROJECTED_GAIN if projected else _RESIDUAL_GAIN
    elif (node.op_type, index) == ("BatchNormalization", 4):
        array = random.uniform(0.7, 1.3, shape)
    else:  # biases, shifts and means
        array = random.standard_normal(shape) * 0.05
    return array.astype(np.float32)


def _fan_in(node: NodeProto, shape: tuple[int, ...]) -> int:
    """Products summed per output value: input channels of a group times the kernel, or K."""
    if node.op_type == "Conv":
        return math.prod(shape[1:])
    transposed = any(a.name == "transB" and a.i for a in node.attribute)
    return shape[1] if transposed else shape[0]


def _image(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Blobs of an eighth of the image's width, with noise of half their size; about unit scale."""
    batch, channels, height, width = shape
    coarse = random.standard_normal((batch, channels, 8, 8))
    rows = np.arange(height) * 8 // height
    columns = np.arange(width) * 8 // width
    return coarse[:, :, rows][:, :, :, columns] + 0.5 * random.standard_normal(shape)
