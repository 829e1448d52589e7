"""What the cases of the TensorRT backend are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import tvm
from tvm import relax

from benchmarks.gpu.cases._case import CudaCase
from collage.backends.tensorrt.library import find_package

RTOL = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 2e-2, "int32": 1e-6, "int64": 1e-6}
"""TF32 is off. Half precision is rounded after every operator."""

PICTURE = (2, 4, 9, 11)
LAST = (2, 9, 11, 4)
"""The same picture with its channels last."""

Input = tuple[Sequence[int], str]
Body = Callable[..., relax.Expr]


def module(inputs: Sequence[Input], body: Body) -> tvm.IRModule:
    """``main`` with inputs of these shapes and dtypes; ``body`` gives the result."""
    params = [relax.Var(f"x{i}", relax.TensorType(*given)) for i, given in enumerate(inputs)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(body(*params)))
        builder.emit_func_output(result)
    return builder.get()


def weights(*shape: int, dtype: str = "float32", seed: int = 0, scale: float = 0.3) -> relax.Expr:
    """A constant of normally distributed values, the same ones at every call."""
    values = np.random.default_rng([seed, *shape]).standard_normal(shape) * scale
    return relax.const(values.astype(np.dtype(dtype)), dtype)


def _input(given: Input | Sequence[int]) -> Input:
    match given:
        case (tuple() | list() as shape, str() as dtype):
            return shape, dtype
        case _:
            return cast(Sequence[int], given), "float32"


def _arch() -> str:
    """An architecture that the installed TensorRT builds engines for without a GPU."""
    package, _ = find_package()
    return "" if package is None or package.needs_gpu else "sm_89"


def case(
    pattern: str,
    inputs: Sequence[Input | Sequence[int]],
    body: Body,
    what: str = "",
    *,
    options: Mapping[str, Any] | None = None,
    rtol: float = 0.0,
) -> CudaCase:
    """A case; inputs without a dtype are float32."""
    given = [_input(i) for i in inputs]
    extents, dtype = given[0]
    shape = "x".join(map(str, extents)) or "scalar"
    name = "-".join(part for part in (pattern, what, dtype, shape) if part)
    return CudaCase(
        name=name,
        backend="tensorrt",
        pattern=f"tensorrt.{pattern}",
        given=module(given, body),
        options=dict(options or {}),
        rtol=rtol or RTOL.get(dtype, 1e-6),
        arch=_arch(),
    )
