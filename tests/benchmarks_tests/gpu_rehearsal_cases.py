"""Cases for a rehearsal of the GPU numerics on a CPU: right ones, and one of each way to fail."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax import op
from tvm.relax.dpl import is_op, wildcard

from benchmarks.gpu.cases import CudaCase
from collage.backends.contract import Availability, ExternalBackend, PatternTriple
from collage.backends.contract.errors import CodegenError
from collage.backends.contract.registry import backend_names, register_backend
from collage.backends.toolchain import native
from collage.testing.graphs import constant, graph

_KERNELS = {
    "exp": "__builtin_trap();",
    "tanh": "for (long i = 0; i < n; ++i) y[i] = x[i];",
    "sigmoid": 'return collage_fail("RuntimeError", "an illegal memory access was encountered");',
}


class FaultyBackend(ExternalBackend):
    """Fails in its code generator, in its kernel's process, or in its result."""

    name = "faulty"

    def probe(self) -> Availability:
        return Availability(True, versions={"faulty": "1"})

    def patterns(self, target: object) -> list[PatternTriple]:
        names = (*_KERNELS, "sqrt")
        return [PatternTriple(f"faulty.{n}", is_op(f"relax.{n}")(wildcard())) for n in names]

    def codegen(self, functions, target, context):  # type: ignore[no-untyped-def]
        sources, symbols = ['#include "collage_ffi.h"'], []
        for function in functions:
            name = str(function.body.blocks[0].bindings[0].value.attrs["Composite"])
            kind = name.removeprefix("faulty.")
            if kind == "sqrt":
                raise CodegenError("this code generator always fails", value=name)
            symbols.append(str(function.attrs["global_symbol"]))
            sources.append(
                f"COLLAGE_EXPORT({symbols[-1]}) {{ const DLTensor* t = collage_tensor(&args[0]);"
                "const float* x = (const float*)collage_data(t); long n = collage_num_elements(t);"
                "float* y = (float*)collage_data(collage_tensor(&args[1]));"
                f"(void)x; (void)y; (void)n; {_KERNELS[kind]} return 0; }}"
            )
        return [native.static_library("\n".join(sources), symbols, context)]


if "faulty" not in backend_names():
    register_backend(FaultyBackend())


def cases() -> list[CudaCase]:
    """Two dense layers in float32, a half-precision product on TVM, and every failure."""
    return [
        CudaCase("dense_bias_relu", "openblas", "openblas.matmul_bias_relu", _dense(op.nn.relu)),
        CudaCase("dense_bias_gelu", "openblas", "openblas.matmul_bias_gelu", _dense(op.nn.gelu)),
        CudaCase("no_pattern", "openblas", "openblas.matmul", _alone(op.exp)),
        CudaCase("half", "tvm", "", _half()),
        CudaCase("crash", "faulty", "faulty.exp", _alone(op.exp)),
        CudaCase("error", "faulty", "faulty.sigmoid", _alone(op.sigmoid)),
        CudaCase("wrong", "faulty", "faulty.tanh", _alone(op.tanh)),
        CudaCase("refused", "faulty", "faulty.sqrt", _alone(op.sqrt)),
    ]


def _dense(activation: object) -> tvm.IRModule:
    def body(emit, x):  # type: ignore[no-untyped-def]
        y = emit(op.matmul(x, constant(48, 32, scale=0.15)))
        return activation(emit(op.add(y, constant(32))))  # type: ignore[operator]

    return graph([(5, 48)], body)


def _alone(operator: object) -> tvm.IRModule:
    return graph([(4, 8)], lambda _, x: operator(x))  # type: ignore[operator]


def _half() -> tvm.IRModule:
    """A float16 product: its error is float16's, which a float64 reference shows."""
    x = relax.Var("x", relax.TensorType((4, 64), "float16"))
    w = relax.Var("w", relax.TensorType((64, 8), "float16"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            out = builder.emit_output(op.matmul(x, w))
        builder.emit_func_output(out)
    return builder.get()
