"""Cases of the ``cutlass`` backend's convolutions: epilogues, dtypes, extents, padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases._case import CudaCase
from collage.backends.relax.static_shape import static_shape
from collage.testing.graphs import Emit, constant, graph

RTOL = {"float16": 4e-3, "bfloat16": 1.6e-2, "float32": 5e-5}
"""The result is rounded to 11, 8 and 24 bits, slices of a sum once each; float32 as 3 x TF32."""
TF32_RTOL = 3e-3
"""Operands are rounded to 11 bits."""

LAYOUTS = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}


@dataclass(frozen=True)
class Convolution:
    """A convolution and what follows it.

    Attributes
    ----------
    data : tuple of int
        Batch, height, width, channels.
    filters : tuple of int
        Output channels, height, width.
    epilogue : str
        Words of the pattern's name: ``bias``, an activation, ``add``, ``multiply``.
    attrs : dict
        Strides, padding, dilation.
    """

    data: tuple[int, int, int, int]
    filters: tuple[int, int, int]
    epilogue: str = ""
    attrs: dict[str, Any] = field(default_factory=dict)

    def module(self, dtype: str) -> tvm.IRModule:
        """The module, with seeded weights."""
        rng = np.random.default_rng([*self.data, *self.filters])
        k, r, s = self.filters
        c = self.data[3]

        def body(emit: Emit, x: relax.Expr, *others: relax.Expr) -> relax.Expr:
            weights = constant(k, r, s, c, rng=rng, scale=(r * s * c) ** -0.5, dtype=dtype)
            y: relax.Expr = op.nn.conv2d(x, weights, **self.attrs, **LAYOUTS)
            for word in _words(self.epilogue):
                y = y if isinstance(y, relax.Var) else emit(y)
                match word:
                    case "bias":
                        y = op.add(y, constant(1, 1, 1, k, rng=rng, scale=3.0, dtype=dtype))
                    case "add":
                        y = op.add(others[0], y)
                    case "multiply":
                        y = op.multiply(y, others[0])
                    case _:
                        y = activation(word, y, emit, dtype)
            return y

        shapes: list[Sequence[int]] = [self.data]
        if {"add", "multiply"} & set(_words(self.epilogue)):
            shapes.append(self._result(dtype))
        return graph(shapes, body, dtype)

    def _result(self, dtype: str) -> tuple[int, ...]:
        k, r, s = self.filters
        x = relax.Var("x", relax.TensorType(self.data, dtype))
        w = relax.Var("w", relax.TensorType((k, r, s, self.data[3]), dtype))
        builder = relax.BlockBuilder()
        call = builder.normalize(op.nn.conv2d(x, w, **self.attrs, **LAYOUTS))
        return static_shape(call)

    @property
    def pattern(self) -> str:
        return f"conv2d_{self.epilogue}" if self.epilogue else "conv2d"


def _words(epilogue: str) -> list[str]:
    return epilogue.replace("gelu_tanh", "gelutanh").split("_") if epilogue else []


def activation(name: str, y: relax.Expr, emit: Emit, dtype: str) -> relax.Expr:
    """An activation as the canonical graph has it."""

    def number(value: float) -> relax.Expr:
        return relax.const(np.array(value, dtype), dtype)

    match name:
        case "relu6":
            return op.clip(y, 0, 6)
        case "sigmoid":
            return op.sigmoid(y)
        case "hardswish":
            shifted = emit(op.add(emit(op.multiply(y, number(1 / 6))), number(0.5)))
            return op.multiply(y, emit(op.clip(shifted, 0, 1)))
        case "gelutanh":
            return op.nn.gelu_tanh(y)
    return getattr(op.nn, name)(y)


def _case(what: str, convolution: Convolution, dtype: str = "float16", **options: Any) -> CudaCase:
    rtol = TF32_RTOL if options.get("allow_tf32") else RTOL[dtype]
    name = f"{convolution.pattern}-{dtype}-{what}"
    pattern = f"cutlass.{convolution.pattern}"
    return CudaCase(name, "cutlass", pattern, convolution.module(dtype), options, rtol)


def cases() -> list[CudaCase]:
    """All cases."""
    same, halved = {"padding": 1}, {"padding": 1, "strides": 2}
    dilated = {"padding": 2, "dilation": 2}
    uneven = {"padding": (0, 1, 2, 1), "strides": (2, 1), "dilation": (1, 2)}
    small = (2, 9, 11, 32)
    older: dict[str, Any] = {"sm": 80, "find_first_valid": True}
    newer: dict[str, Any] = {"split_k_slices": 1}
    return [
        *(
            _case(f"2x9x11x32-{epilogue}", Convolution(small, (40, 3, 3), epilogue, same), **older)
            for epilogue in (
                *("relu", "bias_relu6", "bias_sigmoid", "bias_silu", "bias_hardswish"),
                *("bias_gelu", "bias_gelu_tanh", "bias_multiply", "bias_silu_add"),
            )
        ),
        _case("1x1", Convolution((1, 7, 7, 64), (48, 1, 1)), **older),
        _case("dilated", Convolution((3, 13, 10, 48), (24, 3, 3), "bias_relu", dilated), **older),
        _case("uneven", Convolution((2, 15, 12, 16), (56, 3, 2), "bias_relu", uneven), **older),
        _case(
            "sliced", Convolution((1, 7, 7, 512), (64, 3, 3), "bias_relu", same), split_k_slices=4
        ),
        _case(
            "sliced", Convolution((1, 7, 7, 256), (128, 1, 1), "bias_add_relu"), split_k_slices=2
        ),
        _case("stride", Convolution((1, 14, 14, 64), (128, 1, 1), "bias", {"strides": 2}), **older),
        _case(
            "first",
            Convolution((2, 30, 30, 3), (32, 7, 7), "bias_relu", {"padding": 3, "strides": 2}),
        ),
        _case("fixed", Convolution((2, 17, 17, 8), (24, 3, 3), "bias_relu", same)),
        _case("odd", Convolution((2, 6, 5, 15), (21, 3, 3), "bias", same)),
        _case("access-2", Convolution((2, 6, 5, 18), (30, 3, 3), "bias_add", same)),
        _case(
            "bfloat16",
            Convolution((2, 14, 14, 64), (64, 3, 3), "bias_add_relu", same),
            "bfloat16",
            **older,
        ),
        _case("3xtf32", Convolution((2, 9, 9, 32), (40, 3, 3), "bias_add_relu", same), "float32"),
        _case(
            "3xtf32-first", Convolution((1, 17, 17, 3), (24, 3, 3), "bias_silu", halved), "float32"
        ),
        _case(
            "tf32",
            Convolution((2, 9, 9, 32), (40, 3, 3), "bias_relu", same),
            "float32",
            allow_tf32=True,
        ),
        _case(
            "hopper",
            Convolution((16, 28, 28, 128), (128, 3, 3), "bias_add_relu", same),
            **newer,
        ),
        _case(
            "hopper",
            Convolution((16, 29, 27, 64), (72, 3, 3), "bias_relu6", uneven),
            "bfloat16",
            **newer,
        ),
    ]
