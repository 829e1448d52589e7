"""How the TVM backend turns partitions into kernels, beside other backends' functions."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from tvm import relax

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import TargetError
from collage.backends.tvm.backend import TVMBackend
from collage.backends.tvm.common.lower import OP_PATTERN_OPAQUE
from tests.backends_tests.tvm import cases as tvm_cases


def test_probe_names_every_library() -> None:
    found = TVMBackend().probe()
    assert found.usable
    assert set(found.versions) == {"apache-tvm", "apache-tvm-ffi", "llvm"}


def test_options_are_checked() -> None:
    backend = TVMBackend()
    assert backend.parse_options({"schedule": "none"}).schedule == "none"
    with pytest.raises(TargetError, match="default, dlight, metaschedule, none"):
        backend.parse_options({"schedule": "fastest"})
    with pytest.raises(TargetError, match="valid attributes: schedule"):
        backend.parse_options({"tuning": 3})


def test_no_partition_function_is_left(context: BuildContext) -> None:
    data = np.zeros((4, 64), np.float32)
    mod = tvm_cases.partition(lambda emit, x: emit(relax.op.nn.relu(x)), [data])
    lowered = TVMBackend().lower(mod, tvm_cases.tvm_target(), context)
    names = {gv.name_hint for gv, f in lowered.functions.items() if isinstance(f, relax.Function)}
    assert names == {"main"}
    kernels = tvm_cases.kernels(mod, context)
    assert all(int(f.attrs["op_pattern"]) == OP_PATTERN_OPAQUE for f in kernels.values())


def test_plain_schedule_leaves_loops_alone(context: BuildContext) -> None:
    data = np.zeros((64, 1024), np.float32)
    mod = tvm_cases.partition(lambda emit, x: emit(relax.op.nn.relu(x)), [data])
    (kernel,) = tvm_cases.kernels(mod, context, tvm_cases.tvm_target("none")).values()
    assert tvm_cases.loop_kinds(kernel) == {0}


def test_other_backends_functions_and_plain_operators(context: BuildContext) -> None:
    """A ``Codegen`` function and its calls stay; an operator left in ``main`` gets a schedule."""
    builder = relax.BlockBuilder()
    ty = relax.TensorType((32, 1024), "float32")
    inner = relax.Var("inner", ty)
    attrs = {"Codegen": "elsewhere", "global_symbol": "elsewhere_0"}
    with builder.function("elsewhere_0", [inner], attrs=attrs):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(relax.op.nn.relu(inner)))
        callee = builder.emit_func_output(result)
    x = relax.Var("x", ty)
    with builder.function("main", [x]):
        with builder.dataflow():
            outside = builder.emit(relax.Call(callee, [x]))
            result = builder.emit_output(builder.emit(relax.op.exp(outside)))
        builder.emit_func_output(result)
    mod = builder.get()
    lowered = TVMBackend().lower(mod, tvm_cases.tvm_target(), context)
    assert tvm_ffi.structural_equal(lowered["elsewhere_0"], mod["elsewhere_0"])
    assert "elsewhere_0(x)" in lowered["main"].script()
    assert "relax.exp" not in lowered["main"].script() and "R.exp" not in lowered["main"].script()
    assert tvm_cases.families(tvm_cases.kernels(mod, context)) == ["generic"]


def test_a_field_of_a_field_of_another_backends_result(context: BuildContext) -> None:
    """A recurrent layer beside something else: its results are a tuple among those of both."""
    builder = relax.BlockBuilder()
    ty = relax.TensorType((32, 64), "float32")
    inner = relax.Var("inner", ty)
    attrs = {"Codegen": "elsewhere", "global_symbol": "elsewhere_0"}
    with builder.function("elsewhere_0", [inner], attrs=attrs):
        with builder.dataflow():
            one, two, three = (
                builder.emit(f(inner)) for f in (relax.op.abs, relax.op.exp, relax.op.sin)
            )
            result = builder.emit_output(relax.Tuple([one, relax.Tuple([two, three])]))
        callee = builder.emit_func_output(result)
    x = relax.Var("x", ty)
    with builder.function("main", [x]):
        with builder.dataflow():
            outside = builder.emit(relax.Call(callee, [x]))
            pair = builder.emit(relax.TupleGetItem(outside, 1))
            fields = [builder.emit(relax.TupleGetItem(pair, i)) for i in range(2)]
            result = builder.emit_output(builder.emit(relax.op.sigmoid(fields[0])))
            other = builder.emit_output(fields[1])
        builder.emit_func_output(relax.Tuple([result, other]))
    mod = builder.get()
    lowered = TVMBackend().lower(mod, tvm_cases.tvm_target(), context)
    functions = {
        gv.name_hint for gv, f in lowered.functions.items() if isinstance(f, relax.Function)
    }
    assert functions == {"main", "elsewhere_0"}


def test_partitions_share_a_constant(context: BuildContext) -> None:
    """One kernel, one packed constant, two calls."""
    random = np.random.default_rng()
    weights = relax.const(random.standard_normal((24, 24), dtype=np.float32))
    data = random.standard_normal((8, 24), dtype=np.float32)

    def build(emit, x):  # type: ignore[no-untyped-def]
        return emit(relax.op.matmul(emit(relax.op.matmul(x, weights)), weights))

    mod = tvm_cases.partition(build, [data])
    assert tvm_cases.families(tvm_cases.kernels(mod, context)) == ["matmul"]
    (got,) = tvm_cases.run(mod, [data], context)
    matrix = weights.value.numpy().astype(np.float64)
    tvm_cases.assert_close(got, data @ matrix @ matrix)
