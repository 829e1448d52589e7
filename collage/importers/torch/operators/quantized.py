"""Networks that PyTorch's own tools quantized (``pt2e``): what rounds to steps, and back.

Steps that are known are Relax's own operators, from which libraries compute in bytes. Those that
are found as the network runs, one for each token or each group of weights, are taken apart.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of

_NAMESPACE = "quantized_decomposed"
_BYTES = {"int8": (-128, 127), "uint8": (0, 255)}


def quantized_operators(program: torch.export.ExportedProgram) -> dict[Any, Callable[..., Any]]:
    """What takes a program's operators of steps apart, by operator; none where it has none.

    Examples
    --------
    >>> class Net(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x + 1
    >>> quantized_operators(torch.export.export(Net(), (torch.ones(2),)))
    {}
    """
    used = {
        node.target
        for graph in program.graph_module.modules()
        if isinstance(graph, fx.GraphModule)
        for node in graph.graph.nodes
        if getattr(node.target, "namespace", "") == _NAMESPACE
    }
    if not used:
        return {}
    # Imported already: it defines them.
    from torch.ao.quantization.fx import _decomposed as theirs

    own: dict[str, Callable[..., Any]] = {
        "quantize_per_tensor.default": _unless_in_bytes(theirs.quantize_per_tensor),
        "dequantize_per_tensor.default": _unless_in_bytes(theirs.dequantize_per_tensor),
        "dequantize_per_channel.default": _unless_in_bytes(theirs.dequantize_per_channel),
        "quantize_per_tensor.tensor": _to_given_steps,
        "quantize_per_tensor.tensor2": _to_given_steps,
        "dequantize_per_tensor.tensor": _from_given_steps,
        "dequantize_per_tensor.tensor2": _from_given_steps,
        "choose_qparams.tensor": _steps_of_range,
        "choose_qparams_symmetric.tensor": _steps_around_zero,
    }
    found = {each: own.get(each.__name__) or _their(theirs, each) for each in used}
    return {each: function for each, function in found.items() if function is not None}


def _their(theirs: ModuleType, operator: Any) -> Callable[..., Any] | None:
    """PyTorch's own definition, where it is made of operators."""
    found: Callable[..., Any] | None = getattr(theirs, operator._schema.name.split("::")[1], None)
    return found


def _unless_in_bytes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Takes apart what is not of bytes, or has no axes: the others are converted as they are."""

    def apart(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        kind = next(one for one in reversed(args) if isinstance(one, torch.dtype))
        wanted = kwargs.get("out_dtype") or torch.float32
        kept = str(kind).removeprefix("torch.") in _BYTES and wanted == torch.float32
        return NotImplemented if kept and x.dim() else function(x, *args, **kwargs)

    return apart


def _to_given_steps(
    x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, low: Any, high: Any, kind: torch.dtype
) -> torch.Tensor:
    # PyTorch divides one by the scale in double precision.
    inverse = (1.0 / scale.reshape([]).double()).float()
    steps = torch.round(x.float() * inverse) + zero.reshape([]).float()
    return torch.clamp(steps, low, high).to(kind)


def _from_given_steps(
    x: torch.Tensor,
    scale: torch.Tensor,
    zero: torch.Tensor,
    low: Any,
    high: Any,
    kind: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    wanted = out_dtype or torch.float32
    return (x.to(wanted) - zero.reshape([]).to(wanted)) * scale.reshape([]).to(wanted)


def _steps_of_range(
    x: torch.Tensor, low: int, high: int, eps: float, kind: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    least, most = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = ((most - least) / float(high - low)).clamp(min=eps)
    zero = (low - torch.round(least / scale)).clamp(low, high)
    return scale.reshape(1).double(), zero.reshape(1).long()


def _steps_around_zero(
    x: torch.Tensor, low: int, high: int, eps: float, kind: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    scale = (x.abs().amax() / (float(high - low) / 2)).clamp(min=eps)
    zero = 128 if kind == torch.uint8 else 0
    return scale.reshape(1).double(), torch.full([1], zero, dtype=torch.int64)


def _quantize(importer: Importer, node: fx.Node) -> relax.Expr:
    """Ties go to the even number, as in PyTorch, which multiplies by the inverse of the step."""
    x, scale, zero, low, high, kind = arguments(
        importer, node, "input", "scale", "zero_point", "quant_min", "quant_max", "dtype"
    )
    emit, name = importer.emit, str(kind).removeprefix("torch.")
    if dtype_of(x) != "float32":
        x = emit(op.astype(x, "float32"))
    step, point = relax.const(np.float32(scale)), relax.const(np.array(zero, name))
    found = emit(op.quantize(x, step, point, axis=len(shape_of(x)) - 1, out_dtype=name))
    return found if (low, high) == _BYTES[name] else emit(op.clip(found, low, high))


def _dequantize(importer: Importer, node: fx.Node) -> relax.Expr:
    x, scale, zero = arguments(importer, node, "input", "scale", "zero_point")
    step, point = relax.const(np.float32(scale)), relax.const(np.array(zero, dtype_of(x)))
    return importer.emit(op.dequantize(x, step, point, axis=len(shape_of(x)) - 1))


def _dequantize_channels(importer: Importer, node: fx.Node) -> relax.Expr:
    x, scales, zeros, axis = arguments(importer, node, "input", "scales", "zero_points", "axis")
    emit, kind = importer.emit, dtype_of(x)
    if zeros is None:
        zeros = relax.const(np.zeros(shape_of(scales), kind))
    scales, zeros = (
        one if dtype_of(one) == wanted else emit(op.astype(one, wanted))
        for one, wanted in ((scales, "float32"), (zeros, kind))
    )
    return emit(op.dequantize(x, scales, zeros, axis=axis % len(shape_of(x))))


def _sums(importer: Importer, node: fx.Node) -> relax.Expr:
    """A product of bytes, added up in 32 bits."""
    whole = (importer.emit(op.astype(importer.value(one), "int32")) for one in node.args[:2])
    return importer.emit(op.matmul(*whole, out_dtype="int32"))


QUANTIZED: dict[str, Callable[[Importer, fx.Node], relax.Expr]] = {
    "quantize_per_tensor.default": _quantize,
    "dequantize_per_tensor.default": _dequantize,
    "dequantize_per_channel.default": _dequantize_channels,
    "_int_mm.default": _sums,
}
"""By the name that the translator has for an operator."""
