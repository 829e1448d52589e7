"""Folding of shape computations in an ONNX graph before it is imported.

onnxruntime's basic level does it: constant folding and removal of what does nothing, no operators
of its own. Large weights are kept out of it. They take no part in shape computations, and so a
model of any size fits into one protobuf message.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import onnx
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from collage.backends.devices.cpu_flags import sums_bytes_in_32_bits
from collage.backends.storage import OwnFolder, scratch_parent
from collage.importers.onnx.bodies import lift_constants
from collage.importers.onnx.support import tensor_bytes

_LARGE_BYTES = 64 * 1024
"""Initializers above this stay out of the folding."""

_MAX_PASSES = 4

_DISABLED = ["TransposeOptimizer", "WeightBiasQuantization", "DoubleQDQPairsRemover"]
"""The first moves transposes through layer norms, which then normalize over the channel axis. The
others round weights to bytes that the file has in float32, and once what it rounds twice."""

_log = logging.getLogger(__name__)

_FOLDING_FAILED = (
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
    ort_errors.NoSuchFile,
    ort_errors.InvalidProtobuf,
)


def detach_weights(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, onnx.TensorProto]]:
    """A copy of a model without its large initializers, and those by name, not copied.

    Those of bodies are among them, which are copied once.
    """
    graph = model.graph
    small = onnx.ModelProto(
        ir_version=max(model.ir_version, 4),
        producer_name=model.producer_name,
        opset_import=model.opset_import,
        functions=model.functions,
    )
    small.graph.name = graph.name or "graph"
    small.graph.node.extend(graph.node)
    small.graph.output.extend(graph.output)
    taken = {value.name for value in [*graph.input, *graph.initializer]}
    initializers = [*graph.initializer, *lift_constants(small.graph, taken)]
    large = {t.name: t for t in initializers if tensor_bytes(t) > _LARGE_BYTES}
    small.graph.initializer.extend(t for t in initializers if t.name not in large)
    small.graph.sparse_initializer.extend(graph.sparse_initializer)
    initialized = {t.name for t in graph.initializer}
    small.graph.input.extend(v for v in graph.input if v.name not in initialized)
    return small, large


def weight_inputs(weights: Mapping[str, onnx.TensorProto]) -> list[onnx.ValueInfoProto]:
    """The detached weights as graph inputs."""
    return [
        onnx.helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims))
        for name, tensor in weights.items()
    ]


def fold(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph with its constant parts computed.

    A graph that onnxruntime cannot load, or to which it adds operators of its own, is returned as
    it was: the importer then says which of its operators it cannot take.
    """
    for _ in range(_MAX_PASSES):
        folded = _fold_once(model)
        # Standard functions are expanded after a pass; their shape computations need another one.
        if len(folded.graph.node) == len(model.graph.node):
            return folded
        model = folded
    return model


def _fold_once(model: onnx.ModelProto) -> onnx.ModelProto:
    before = _operator_domains(model)
    with OwnFolder(scratch_parent()) as own:
        path = own.path / "folded.onnx"
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(path)
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        # Without VNNI it adds pairs of products of bytes in 16 bits, and what is too large is cut.
        if not sums_bytes_in_32_bits():
            options.add_session_config_entry("session.x64quantprecision", "1")
        try:
            onnxruntime.InferenceSession(
                model.SerializeToString(),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=_DISABLED,
            )
        except _FOLDING_FAILED as err:
            _log.info("onnxruntime did not fold the graph: %s", err)
            return model
        folded = onnx.load_model(str(path))
    added = _operator_domains(folded) - before
    if added:
        _log.info("onnxruntime added operators of %s; the graph is imported unfolded", added)
        return model
    return folded


def _operator_domains(model: onnx.ModelProto) -> set[str]:
    """Domains of all nodes, the default one as the empty string."""
    return {"" if node.domain == "ai.onnx" else node.domain for node in model.graph.node}


def attach_weights(model: onnx.ModelProto, weights: Mapping[str, onnx.TensorProto]) -> None:
    """Give the weights back that :func:`detach_weights` took out and the graph still uses.

    Parameters
    ----------
    model : onnx.ModelProto
        Changed in place.
    weights : mapping of str to onnx.TensorProto
        By name.
    """
    used = {name for node in model.graph.node for name in node.input}
    used |= {value.name for value in model.graph.output}
    kept = [value for value in model.graph.input if value.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(t for name, t in weights.items() if name in used)
