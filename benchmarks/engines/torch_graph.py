"""An ONNX graph as a torch module, for the operators of the benchmark's models.

No converter in use today takes every one of these models, and exporting from torch would give
only two of them; so the other engines' file is executed node by node, which ``torch.compile``
traces into the same graph as handwritten layers would give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from onnx import ModelProto, NodeProto, helper, numpy_helper
from torch import Tensor

Attributes = dict[str, Any]


class OnnxModule(torch.nn.Module):
    """Runs the graph's nodes in order; inputs by position, outputs as a tuple.

    Raises
    ------
    ValueError
        On operators that are not in the table below, all of them named.
    """

    def __init__(self, model: ModelProto) -> None:
        super().__init__()
        graph = model.graph
        unknown = sorted({n.op_type for n in graph.node} - set(_OPERATORS))
        if unknown:
            raise ValueError(f"operators without a torch equivalent here: {', '.join(unknown)}")
        # Integers and scalars stay plain values: shapes and bounds must be known when tracing.
        self.values: dict[str, Any] = {}
        self.weights: dict[str, str] = {}
        for tensor in graph.initializer:
            array = numpy_helper.to_array(tensor)
            if array.dtype.kind == "f" and array.ndim:
                self.weights[tensor.name] = f"weight_{len(self.weights)}"
                self.register_buffer(self.weights[tensor.name], torch.from_numpy(array.copy()))
            else:
                self.values[tensor.name] = array.tolist()
        constants = {*self.values, *self.weights}
        self.inputs = [i.name for i in graph.input if i.name not in constants]
        self.results = [o.name for o in graph.output]
        self.steps = [_step(node) for node in graph.node]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        values: dict[str, Any] = dict(self.values)
        values.update({name: getattr(self, weight) for name, weight in self.weights.items()})
        values.update(zip(self.inputs, inputs, strict=True))
        for operator, attributes, names, output in self.steps:
            arguments = [values[name] if name else None for name in names]
            values[output] = operator(attributes, *arguments)
        return tuple(values[name] for name in self.results)


def _step(node: NodeProto) -> tuple[Callable[..., Any], Attributes, list[str], str]:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return _OPERATORS[node.op_type], attributes, list(node.input), node.output[0]


def _padded(x: Tensor, a: Attributes, value: float = 0.0) -> tuple[Tensor, list[int]]:
    """Symmetric padding is left to the operator; any other is applied to ``x`` here."""
    pads = list(a.get("pads", [0, 0, 0, 0]))
    half = len(pads) // 2
    if pads[:half] == pads[half:]:
        return x, pads[:half]
    pairs = [p for i in reversed(range(half)) for p in (pads[i], pads[half + i])]
    return F.pad(x, pairs, value=value), [0] * half


def _conv(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    x, padding = _padded(x, a)
    strides, dilations = a.get("strides", [1, 1]), a.get("dilations", [1, 1])
    return F.conv2d(x, weight, bias, strides, padding, dilations, a.get("group", 1))


def _max_pool(a: Attributes, x: Tensor) -> Tensor:
    x, padding = _padded(x, a, -torch.inf)
    ceil = bool(a.get("ceil_mode", 0))
    return F.max_pool2d(x, a["kernel_shape"], a.get("strides", [1, 1]), padding, ceil_mode=ceil)


def _average_pool(a: Attributes, x: Tensor) -> Tensor:
    counted = bool(a.get("count_include_pad", 0))
    x, padding = _padded(x, a)
    return F.avg_pool2d(
        x, a["kernel_shape"], a.get("strides", [1, 1]), padding, count_include_pad=counted
    )


def _batch_norm(
    a: Attributes, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> Tensor:
    return F.batch_norm(x, mean, var, scale, bias, eps=a.get("epsilon", 1e-5))


def _gemm(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.linear(x, weight if a.get("transB") else weight.T, bias)


def _reshape(a: Attributes, x: Tensor, shape: list[int]) -> Tensor:
    return x.reshape([x.shape[i] if d == 0 else d for i, d in enumerate(shape)])


def _mean(a: Attributes, x: Tensor, axes: list[int] | None = None) -> Tensor:
    return x.mean(a.get("axes", axes), keepdim=bool(a.get("keepdims", 1)))


def _layer_norm(a: Attributes, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return F.layer_norm(x, scale.shape, scale, shift, a.get("epsilon", 1e-5))


def _unsqueeze(a: Attributes, x: Tensor, axes: list[int]) -> Tensor:
    for axis in sorted(axes):
        x = x.unsqueeze(axis)
    return x


def _gather(a: Attributes, x: Tensor, indices: Tensor | list[Any]) -> Tensor:
    if a.get("axis", 0) != 0:
        raise ValueError("only a gather along the first axis is known here")
    if not isinstance(indices, Tensor):
        indices = torch.tensor(indices)
    return F.embedding(indices, x)


def _sum(a: Attributes, *terms: Tensor) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


_OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": lambda a, x, y: x + y,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": lambda a, x: x.to(torch.float32),
    "Clip": lambda a, x, low, high: torch.clamp(x, low, high),
    "Concat": lambda a, *xs: torch.cat(xs, a["axis"]),
    "Conv": _conv,
    "Div": lambda a, x, y: x / y,
    "Dropout": lambda a, x, *_: x,
    "Erf": lambda a, x: torch.erf(x),
    "Flatten": lambda a, x: x.flatten(a.get("axis", 1)),
    "Gather": _gather,
    "Gelu": lambda a, x: F.gelu(x, approximate=a.get("approximate", b"none").decode()),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda a, x: x.mean((2, 3), keepdim=True),
    "LayerNormalization": _layer_norm,
    "MatMul": lambda a, x, y: x @ y,
    "MaxPool": _max_pool,
    "Mul": lambda a, x, y: x * y,
    "ReduceMean": _mean,
    "Relu": lambda a, x: F.relu(x),
    "Reshape": _reshape,
    "Softmax": lambda a, x: F.softmax(x, a.get("axis", -1)),
    "Sub": lambda a, x, y: x - y,
    "Sum": _sum,
    "Transpose": lambda a, x: x.permute(a["perm"]),
    "Unsqueeze": _unsqueeze,
}
