"""From a Relax partition function to an ONNX model: the walk, operator by operator.

Composite functions are walked through, each operator once. Large constants stand in bytes that all
models of a module share; a model names its places among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import onnx
import tvm
from onnx import helper
from tvm import relax

from collage.backends.onnxruntime.idioms import Nodes, simplify
from collage.backends.onnxruntime.model import CONTRIB, OPSET, ModelWriter, OrtTensor
from collage.backends.relax.partitions.layers import MOVEMENTS, LayerWalk
from collage.backends.relax.partitions.walk import PartitionWalk, registration
from collage.backends.relax.static_shape import leaf_types, static_shape, tensor_dtype, tensor_shape
from collage.backends.relax.tensor_spec import TensorSpec
from collage.backends.toolchain.shared_bytes import SharedBytes

Converted: TypeAlias = "OrtTensor | list[OrtTensor]"
Converter: TypeAlias = "Callable[[RegionWriter, relax.Call], Converted]"

CONVERTERS: dict[str, Converter] = {**MOVEMENTS}
"""By Relax operator; the others filed by ``converters/`` through :func:`converts`."""

converts = registration(CONVERTERS)
"""Decorator: register the converter of Relax operators (their names without ``relax.``)."""

_IR_VERSION = 9
"""Of ONNX, which has had :data:`OPSET` since."""


@dataclass(frozen=True)
class Region:
    """One partition as an ONNX model.

    Attributes
    ----------
    symbol : str
        The partition's.
    model : bytes
        Its inputs are called ``i0``, ``i1``, …, its outputs ``o0``, ``o1``, ….
    inputs, outputs : tuple of TensorSpec
        Of the partition.
    """

    symbol: str
    model: bytes
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class RegionWriter(ModelWriter, LayerWalk[OrtTensor]):
    """Writes one partition function as a model.

    Parameters
    ----------
    symbol : str
        The partition's.
    shared : SharedBytes
        Gets the bytes of large constants.
    """

    handlers = CONVERTERS

    def __init__(self, symbol: str, shared: SharedBytes) -> None:
        ModelWriter.__init__(self, symbol, shared)
        PartitionWalk.__init__(self, symbol)

    def write(self, function: relax.Function) -> Region:
        """The whole region.

        Raises
        ------
        CodegenError
            When something has no converter, or a node does not give what Relax says.
        """
        inputs = tuple(TensorSpec.of(parameter.ty) for parameter in function.params)
        outputs = tuple(TensorSpec.of(ty) for ty in leaf_types(function.ret_ty))
        tensors = self.walk(function, self._input)
        self._give([self.cast(x, spec.dtype) for x, spec in zip(tensors, outputs, strict=True)])
        given = [self._info(f"i{index}", spec) for index, spec in enumerate(inputs)]
        wanted = [self._info(f"o{index}", spec) for index, spec in enumerate(outputs)]
        names = [value.name for value in wanted]
        nodes = simplify(Nodes(self._nodes, self.numbers(), self.shapes, names))
        read = {value for node in nodes for value in node.input}
        constants = [one for one in self._initializers if one.name in read]
        graph = helper.make_graph(nodes, "region", given, wanted, constants)
        domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        model = helper.make_model(graph, ir_version=_IR_VERSION, opset_imports=domains)
        self._hold_to_shapes(model)
        return Region(self.symbol, model.SerializeToString(), inputs, outputs)

    def _give(self, tensors: Sequence[OrtTensor]) -> None:
        """Let values be the outputs: by their names where they can have these, else copied."""
        made = {name for node in self._nodes for name in node.output}
        names: dict[str, str] = {}
        for index, tensor in enumerate(tensors):
            if tensor.name in made and tensor.name not in names:
                names[tensor.name] = f"o{index}"
            else:
                # An input, a constant, or another output already.
                source = names.get(tensor.name, tensor.name)
                copy = helper.make_node("Identity", [source], [f"o{index}"], f"copy{index}")
                self._nodes.append(copy)
        for node in self._nodes:
            for values in (node.input, node.output):
                values[:] = [names.get(value, value) for value in values]
        self.shapes |= {new: self.shapes[old] for old, new in names.items() if old in self.shapes}

    def _hold_to_shapes(self, model: onnx.ModelProto) -> None:
        """Compare what ONNX infers, where it can, with what is known of values."""
        try:
            inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        except onnx.shape_inference.InferenceError as err:
            raise self.error(str(err).strip().splitlines()[-1]) from err
        for value in inferred.graph.value_info:
            kind = value.type.tensor_type
            known = self.shapes.get(value.name)
            if known is None or not kind.HasField("shape"):
                continue
            extents = [dim.dim_value for dim in kind.shape.dim if dim.HasField("dim_value")]
            if len(extents) == len(kind.shape.dim) and tuple(extents) != known:
                raise self.error(f"a node gives shape {tuple(extents)}, not {known}")

    def _info(self, name: str, spec: TensorSpec) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, self.element_type(spec.dtype), spec.shape)

    def _input(self, index: int, parameter: relax.Var) -> OrtTensor:
        shape = tensor_shape(parameter)
        if shape is None:
            raise self.error(f"input {index} is no static tensor: {parameter.ty}")
        return self._known(OrtTensor(f"i{index}", tensor_dtype(parameter)), shape)

    def constant_tensor(self, constant: tvm.ir.GenericConst) -> OrtTensor:
        array = self.array(constant)
        assert array is not None
        return self.constant(array)

    def check(self, call: relax.Call, name: str, result: Converted) -> None:
        """Hold what a converter made to the shapes and dtypes that Relax says.

        Raises
        ------
        CodegenError
            When one differs, which would be silent otherwise.
        """
        made = result if isinstance(result, list) else [result]
        for tensor, ty in zip(made, leaf_types(call.ty), strict=True):
            wanted = static_shape(ty)
            given = self.shapes.setdefault(tensor.name, wanted)
            if given != wanted:
                raise self.error(f"{name} gives shape {given}, not {wanted}")
            if tensor.dtype != tensor_dtype(ty):
                raise self.error(f"{name} gives dtype {tensor.dtype}, not {tensor_dtype(ty)}")


def write_region(function: relax.Function, shared: SharedBytes) -> Region:
    """The ONNX model of a partition function.

    Parameters
    ----------
    function : relax.Function
        A partition.
    shared : SharedBytes
        Gets the bytes of large constants.

    Returns
    -------
    Region
        Not seen by onnxruntime yet.

    Raises
    ------
    CodegenError
        When it holds something that has no converter.
    """
    return RegionWriter(str(function.attrs["global_symbol"]), shared).write(function)
