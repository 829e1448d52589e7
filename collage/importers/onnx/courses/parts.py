"""The straight-line parts of a graph, imported one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

from collage.backends.contract.errors import ModelError
from collage.course import Run
from collage.importers._base import ImportedModel
from collage.importers.courses.kept import KeptParts, known_results
from collage.importers.courses.values import Value
from collage.importers.onnx.courses.values import Constants, declared
from collage.importers.onnx.inference import infer_shapes
from collage.importers.onnx.known import Known, names_used
from collage.importers.onnx.straight import DataDecideError
from collage.importers.onnx.support import node_label

Importing = Callable[[onnx.ModelProto, str, bool], ImportedModel]
"""Imports a straight-line graph of that name; at any price, or not what is dear."""


class ImpossibleError(ModelError):
    """The operators of a part do not take tensors of these shapes, whoever computes them."""


class Parts(KeptParts):
    """Imports parts, and remembers them.

    Parameters
    ----------
    model : onnx.ModelProto
        Says which operator sets its nodes are of.
    constants : Constants
        What is known before anything runs; parts whose results turn out to be, add to it.
    importing : callable
        See :data:`Importing`.
    """

    def __init__(self, model: onnx.ModelProto, constants: Constants, importing: Importing) -> None:
        super().__init__()
        self._opsets = list(model.opset_import)
        self._version = model.ir_version
        self._constants = constants
        self._importing = importing

    def run(
        self,
        nodes: Sequence[onnx.NodeProto],
        results: Sequence[str],
        scope: dict[str, Value],
        role: str,
        *,
        at_any_price: bool = True,
    ) -> list[Run]:
        """The call of a part that computes what of the results is not there yet; none if all is.

        Parameters
        ----------
        nodes : sequence of onnx.NodeProto
            In order.
        results : sequence of str
            Values of theirs, of the scope, or constants.
        scope : dict of str to Value
            What is there; gets the results.
        role : str
            What the part is called, with a number.
        at_any_price : bool
            Whether what is not chosen may be computed, too.

        Returns
        -------
        list of Run
            One, or none.

        Raises
        ------
        DataDecideError
            When it is no straight line.
        ImpossibleError
            When no tensors of these shapes can be computed with so.
        ModelError
            For what cannot be imported.
        """
        made = {name for node in nodes for name in node.output}
        wanted = [n for n in dict.fromkeys(results) if n in made and n not in self._constants]
        if not wanted:
            return []
        model, inputs = self._model(nodes, wanted, scope)
        try:
            found = self._importing(model, role, at_any_price)
        except DataDecideError:
            raise
        except ModelError as err:
            if not _is_impossible(model):
                raise
            raise ImpossibleError(str(err), value=err.value) from err
        if found.chosen:
            raise ModelError(
                f"{found.chosen[0].label} chooses as many rows as the data say, in a model whose "
                "course data choose as well; cut the model there, with onnx.utils.extract_model",
                value=found.chosen[0].label,
            )
        known = known_results(found.mod)
        for name, info, array in zip(wanted, found.outputs, known, strict=True):
            scope[name] = Value(info.shape, info.dtype)
            if array is not None:
                self._constants.add(name, array)
        if all(array is not None for array in known):
            return []
        return [Run(self.keep(found, role), tuple(inputs), tuple(wanted))]

    def without_known(
        self, nodes: Sequence[onnx.NodeProto], scope: Mapping[str, Value]
    ) -> list[onnx.NodeProto]:
        """Nodes whose results are not known; those of the others are constants from now on.

        Parameters
        ----------
        nodes : sequence of onnx.NodeProto
            In order.
        scope : mapping of str to Value
            What is there.

        Returns
        -------
        list of onnx.NodeProto
            What is left, in order.
        """
        model, _ = self._model(nodes, [], scope)
        known = Known(model)
        left = []
        for node in nodes:
            if known.learn(node):
                for name in filter(None, node.output):
                    self._constants.add(name, np.asarray(known.values[name]))
            else:
                left.append(node)
        return left

    def _model(
        self, nodes: Sequence[onnx.NodeProto], results: Sequence[str], scope: Mapping[str, Value]
    ) -> tuple[onnx.ModelProto, list[str]]:
        """Nodes as a model; and the names of its inputs."""
        used = dict.fromkeys(names_used(nodes))
        inputs = [name for name in used if name in scope and name not in self._constants]
        for name in inputs:
            if scope[name].counts:
                label = next(node_label(node) for node in nodes if name in names_used([node]))
                raise ModelError(
                    f"how many rows '{name}' has depends on data, and {label} reads them: cut the "
                    "model there, with onnx.utils.extract_model, and compute the rest outside",
                    value=name,
                )
        graph = helper.make_graph(
            list(nodes),
            "part",
            [declared(scope[name], name) for name in inputs],
            [],
            initializer=[t for n, t in self._constants.tensors.items() if n in used],
        )
        model = helper.make_model(graph, opset_imports=self._opsets, ir_version=self._version)
        types = _types(model) if results else {}
        for name in results:
            value = onnx.ValueInfoProto(name=name)
            if name in types:
                value.type.CopyFrom(types[name])
            model.graph.output.append(value)
        return model, inputs


def _types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """What ONNX finds out about the values of a graph; without weights, which may be large."""
    try:
        graph = infer_shapes(model, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError):
        return {}
    return {value.name: value.type for value in graph.value_info}


def _is_impossible(model: onnx.ModelProto) -> bool:
    """Whether the standard itself rules out what a graph does with shapes."""
    try:
        infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError) as err:
        return "ShapeInferenceError" in str(err)
    return False
