"""TVM's ONNX importer with what it gets silently wrong mended or refused.

Every operator's result is bound to a variable that bears the node's name, so that reports can speak
of the model's own layers. All nodes that cannot be converted are collected and named at once.
"""

from __future__ import annotations

import logging
from typing import Any

import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from collage.backends.contract.errors import ModelError, last_line
from collage.backends.relax.static_shape import tensor_shape
from collage.importers.naming import NamingBuilder
from collage.importers.onnx.operators import converter_of
from collage.importers.onnx.operators.node import Inputs, Node, Refused
from collage.importers.onnx.operators.older import with_inputs
from collage.importers.onnx.support import node_label

_log = logging.getLogger(__name__)

Attributes = dict[str, Any]

_OF_SEQUENCES = {
    *("ConcatFromSequence", "SequenceAt", "SequenceErase", "SequenceInsert", "SequenceLength")
}
"""What TVM's converters look into a sequence for; into a tensor they would look without end."""


class CheckedImporter(ONNXGraphImporter):
    """Converts one graph; :meth:`convert` is the entry."""

    def __init__(self) -> None:
        super().__init__({}, "float32", sanitize=True)
        self.bb = NamingBuilder()
        self.output_names: list[str] = []
        self._failures: list[str] = []
        self._lost: set[relax.Var] = set()

    def convert(self, model: onnx.ModelProto) -> tvm.IRModule:
        """Import a graph with static input shapes.

        Its outputs are ``output_names`` then: of a sequence, each of its tensors.

        Raises
        ------
        ModelError
            Names every node that cannot be converted, with the reason.
        """
        versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
        for node in model.graph.node:
            node.name = node_label(node)
        # TVM's importer takes an extent of 0 for an open one.
        self._shape = {
            value.name: [int(dim.dim_value) for dim in value.type.tensor_type.shape.dim]
            for value in model.graph.input
        }
        # Sequences among the outputs are taken apart meanwhile; the model may be converted again.
        declared = [
            onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in model.graph.output
        ]
        try:
            mod = self.from_onnx(model.graph, versions[0] if versions else 1)
        except KeyError as err:
            raise ModelError(
                f"the graph cannot be imported: {err} is used before it is defined", value=str(err)
            ) from err
        except (ValueError, AssertionError, tvm.error.InternalError, tvm.error.OpError) as err:
            # Raised between operators; with nodes lost, those are the reason.
            self._require_complete()
            raise ModelError(
                f"the graph cannot be imported: {last_line(err)}", value=str(err)
            ) from err
        finally:
            del model.graph.output[:]
            model.graph.output.extend(declared)
        self._require_complete()
        return mod

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the values of the graph that was converted, by their names in it."""
        found = {name: _shape(expr) for name, expr in self._nodes.items()}
        return {name: shape for name, shape in found.items() if shape is not None}

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        super()._construct_nodes(graph)
        self.output_names = []
        for value in graph.output:
            self.output_names += self._tensors_of(value.name)
        del graph.output[:]
        graph.output.extend(map(onnx.helper.make_empty_tensor_value_info, self.output_names))

    def _tensors_of(self, name: str) -> list[str]:
        """What an output is made of: itself, or a sequence's tensors."""
        given = self._nodes.get(name)
        if not _is_sequence(given):
            return [name]
        names = [f"{name}.{place}" for place in range(len(given.ty.fields))]
        if not names:
            raise ValueError(f"the sequence '{name}', an output, is empty")
        for place, one in enumerate(names):
            self._nodes[one] = self.bb.emit(relax.TupleGetItem(given, place))
        _log.warning(
            "output '%s' is a sequence; its tensors are given, as %s", name, ", ".join(names)
        )
        return names

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        """Nothing: they were refused before, and TVM knows nothing of the converters here."""

    def _require_complete(self) -> None:
        if self._failures:
            raise ModelError(
                "these nodes cannot be imported: " + "; ".join(self._failures),
                value=list(self._failures),
            )

    def _convert_operator(
        self, op_name: str, inputs: Inputs, attrs: Attributes, opset: int
    ) -> relax.Expr:
        name = self.bb.name = str(attrs["tvm_custom"]["name"])
        if any(isinstance(x, relax.Var) and x in self._lost for x in inputs):
            return self._placeholder(attrs)
        try:
            inputs = with_inputs(op_name, inputs, attrs, opset)
            ours = converter_of(op_name)
            found = ours(Node(self.bb, inputs, attrs, opset)) if ours is not None else None
            if found is None:
                if op_name in _OF_SEQUENCES and not _is_sequence(inputs[0]):
                    raise Refused("what it reads is no sequence")
                found = super()._convert_operator(op_name, inputs, attrs, opset)
            return self._named(found, name)
        except Refused as err:
            self._failures.append(f"{name} ({op_name}: {err})")
            return self._placeholder(attrs)
        except Exception as err:  # noqa: BLE001 - converters raise anything; each is reported below
            self._failures.append(f"{name} ({op_name}: {last_line(err)})")
            return self._placeholder(attrs)

    def _named(self, expr: Any, name: str) -> Any:
        if isinstance(expr, relax.Call) and not tvm.ir.is_prim_expr(expr):
            expr = self.bb.normalize(expr)
            if isinstance(expr.ty, relax.TensorType):
                return self.bb.emit(expr, name_hint=name)
        return expr

    def _placeholder(self, attrs: Attributes) -> relax.Expr:
        """Stands for the results of a node that failed, so that the others can still be tried."""
        count = int(attrs["tvm_custom"]["num_outputs"])
        lost = [relax.Var("lost", relax.TensorType(dtype="float32", ndim=-1)) for _ in range(count)]
        self._lost.update(lost)
        return lost[0] if count == 1 else relax.Tuple(lost)


def _is_sequence(expr: Any) -> bool:
    return isinstance(expr, relax.Tuple) or isinstance(getattr(expr, "ty", None), relax.TupleType)


def _shape(expr: Any) -> tuple[int, ...] | None:
    if isinstance(expr, relax.ShapeExpr):
        return (len(expr.values),)
    if tvm.ir.is_prim_expr(expr):
        return ()
    ty = getattr(expr, "ty", None)
    return tensor_shape(ty) if isinstance(ty, relax.TensorType) else None
