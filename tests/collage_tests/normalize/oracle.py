"""Runs a module before and after normalization; shared by the ``test_normalize_*`` files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from collage.cost.reference import evaluate, largest_error
from collage.normalize import normalize
from collage.rewrite import flat_bindings, op_name

Array = np.ndarray[Any, np.dtype[Any]]
Body = Callable[..., relax.Expr]


def module(shapes: Sequence[tuple[int, ...]], body: Body, dtype: str = "float32") -> tvm.IRModule:
    """A module whose ``main`` takes tensors of these shapes; ``body(builder, *tensors)``."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(s, dtype)) for i, s in enumerate(shapes)]
    with builder.function("main", params=params):
        with builder.dataflow():
            output = builder.emit_output(body(builder, *params))
        builder.emit_func_output(output)
    return builder.get()


def run(mod: tvm.IRModule, inputs: Sequence[Array]) -> list[Array]:
    """Run through TVM without schedules, for what the numpy oracle cannot tell: that it builds."""
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    result = machine["main"](*[tvm.runtime.tensor(x) for x in inputs])
    if isinstance(result, tvm.runtime.Tensor):
        return [result.numpy()]
    return [item.numpy() for item in result]


def random_inputs(mod: tvm.IRModule, seed: int = 0) -> list[Array]:
    """Normally distributed inputs for a module's float parameters."""
    random = np.random.default_rng(seed)
    shapes = [tuple(int(d) for d in p.ty.shape.values) for p in mod["main"].params]
    return [random.standard_normal(s, np.float32) for s in shapes]


def operators(mod: tvm.IRModule) -> list[str]:
    """The operators of ``main`` in order."""
    return [op_name(v) or type(v).__name__ for _, v in flat_bindings(mod["main"])]


def check(
    mod: tvm.IRModule, wanted: Sequence[str], *, inputs: Sequence[Array] | None = None
) -> tvm.IRModule:
    """Normalize; the outputs stay, the operators are the wanted ones, and once is enough."""
    inputs = random_inputs(mod) if inputs is None else inputs
    normal = normalize(mod)
    for after, before in zip(evaluate(normal, inputs), evaluate(mod, inputs), strict=True):
        assert after.shape == before.shape
        assert after.dtype == before.dtype
        assert np.ptp(before) > 0, "a constant output proves nothing"
        assert largest_error(after, before) < 1e-5
    assert operators(normal) == list(wanted)
    assert len(normal["main"].body.blocks) == 1
    assert tvm_ffi.structural_equal(normalize(normal), normal)
    return normal


def call_of(mod: tvm.IRModule, name: str) -> relax.Call:
    """The only call of this operator."""
    (found,) = [v for _, v in flat_bindings(mod["main"]) if op_name(v) == name]
    return found


def normal(*shape: int, seed: int = 7) -> relax.Expr:
    """A constant of normally distributed numbers."""
    return relax.const(np.random.default_rng(seed).standard_normal(shape, np.float32))


def positive(*shape: int, seed: int = 8) -> relax.Expr:
    """A constant between 0.5 and 1.5."""
    return relax.const(np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype("float32"))
