"""Partitioned modules as lowering produces them, built by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import ir, relax

from collage.backends.contract import PARTITION_ATTR

Body = Callable[..., relax.Expr]


def tensor(name: str, *shape: int, dtype: str = "float32") -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, dtype))


def random_weight(rng: np.random.Generator, *shape: int) -> relax.Expr:
    return relax.const(rng.standard_normal(shape).astype("float32"))


def native_partition(
    params: Sequence[relax.Var], body: Body, name: str = "fused", backend: str = "tvm"
) -> tvm.IRModule:
    """``main`` calls one native partition whose operators are ``body(*params)``."""
    builder = relax.BlockBuilder()
    attrs = {PARTITION_ATTR: backend}
    with builder.function(name, list(params), attrs=attrs, private=True):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(body(*params)))
        builder.emit_func_output(out)
    return _with_main(builder, name, params)


def external_partition(
    backend: str, params: Sequence[relax.Var], body: Body, composite: str, name: str = "fused"
) -> tvm.IRModule:
    """``main`` calls one Relax BYOC partition: an inner composite whose operators are ``body``."""
    inner_params = [relax.Var(f"{param.name}_inner", param.ty) for param in params]
    inner_builder = relax.BlockBuilder()
    with inner_builder.function("inner", inner_params, private=True):
        with inner_builder.dataflow():
            out = inner_builder.emit_output(inner_builder.normalize(body(*inner_params)))
        inner_builder.emit_func_output(out)
    inner = inner_builder.get()["inner"].with_attr("Composite", composite)
    builder = relax.BlockBuilder()
    attrs = {"Codegen": backend, "global_symbol": name}
    with builder.function(name, list(params), attrs=attrs):
        local = builder.emit(inner)
        builder.emit_func_output(builder.emit(ir.Call(local, list(params))))
    return _with_main(builder, name, params)


def _with_main(builder: relax.BlockBuilder, name: str, params: Sequence[relax.Var]) -> tvm.IRModule:
    partition = builder.get().get_global_var(name)
    outer = [relax.Var(f"{param.name}_outer", param.ty) for param in params]
    with builder.function("main", outer):
        with builder.dataflow():
            result = builder.emit_output(ir.Call(partition, outer))
        builder.emit_func_output(result)
    return builder.get()
