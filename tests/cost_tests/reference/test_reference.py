"""The numpy oracle against TVM's own unscheduled code and against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import helper
from tvm import relax
from tvm.relax import op

from collage.backends.contract.errors import MeasurementError
from collage.backends.relax.static_shape import static_shape
from collage.cost.reference import evaluate, largest_error
from collage.cost.reference.operators import OPERATORS
from collage.cost.reference.operators.elementwise import erf

RNG = np.random.default_rng(20)


def tensor(*shape: int, dtype: str = "float32") -> relax.Var:
    return relax.Var("x", relax.TensorType(shape, dtype))


def weight(*shape: int) -> relax.Expr:
    return relax.const(RNG.standard_normal(shape).astype("float32"))


def function(inputs: Sequence[relax.Var], body: relax.Expr) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    with builder.function("main", list(inputs)):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(body))
        builder.emit_func_output(out)
    return builder.get()


def random_inputs(mod: tvm.IRModule) -> list[np.ndarray]:
    arrays = []
    for param in mod["main"].params:
        shape = static_shape(param)
        dtype = str(param.ty.dtype)
        if dtype.startswith("float"):
            arrays.append(np.asarray(RNG.standard_normal(shape)).astype(dtype))
        else:
            arrays.append(RNG.integers(0, 3, shape).astype(dtype))
    return arrays


def run_tvm(mod: tvm.IRModule, inputs: list[np.ndarray]) -> list[np.ndarray]:
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(a) for a in inputs))
    if isinstance(result, tvm.runtime.Tensor):
        return [result.numpy()]
    return [item.numpy() for item in result]


X = (2, 8, 11, 9)
Build = Callable[[relax.Var], Any]

ON_IMAGE: dict[str, Build] = {
    "conv": lambda x: op.nn.conv2d(x, weight(6, 8, 3, 3), padding=1),
    "conv_strided": lambda x: op.nn.conv2d(
        x, weight(6, 8, 3, 2), strides=(2, 1), padding=(1, 0, 2, 1)
    ),
    "conv_dilated": lambda x: op.nn.conv2d(x, weight(4, 8, 3, 3), dilation=(2, 3), padding=2),
    "conv_pointwise": lambda x: op.nn.conv2d(x, weight(16, 8, 1, 1)),
    "conv_grouped": lambda x: op.nn.conv2d(x, weight(12, 2, 3, 3), groups=4, padding=1),
    "conv_depthwise": lambda x: op.nn.conv2d(x, weight(8, 1, 3, 3), groups=8, strides=2),
    "conv_multiplier": lambda x: op.nn.conv2d(x, weight(16, 1, 3, 3), groups=8),
    "conv_transpose": lambda x: op.nn.conv2d_transpose(
        x, weight(8, 5, 3, 4), strides=(2, 3), padding=(1, 0), output_padding=(1, 2)
    ),
    "conv_transpose_grouped": lambda x: op.nn.conv2d_transpose(
        x, weight(8, 3, 3, 3), strides=2, groups=2, padding=1
    ),
    "max_pool": lambda x: op.nn.max_pool2d(x, (3, 2), strides=2, padding=(1, 0, 1, 1)),
    "max_pool_ceil": lambda x: op.nn.max_pool2d(x, 3, strides=2, ceil_mode=True),
    "max_pool_dilated": lambda x: op.nn.max_pool2d(x, 3, dilation=2, padding=1),
    "avg_pool": lambda x: op.nn.avg_pool2d(x, 3, strides=2, padding=1),
    "avg_pool_include": lambda x: op.nn.avg_pool2d(x, 3, padding=1, count_include_pad=True),
    "avg_pool_beyond": lambda x: op.nn.avg_pool2d(
        x, 4, strides=2, padding=1, ceil_mode=True, count_include_pad=True
    ),
    "adaptive": lambda x: op.nn.adaptive_avg_pool2d(x, (4, 3)),
    "adaptive_one": lambda x: op.nn.adaptive_avg_pool2d(x, 1),
    "mean": lambda x: op.mean(x, [2, 3], keepdims=True),
    "sum": lambda x: op.sum(x, 1),
    "max": lambda x: op.max(x, [-1]),
    "variance": lambda x: op.variance(x, [1, 2]),
    "softmax": lambda x: op.nn.softmax(x, 1),
    "log_softmax": lambda x: op.nn.log_softmax(x, -1),
    "layer_norm": lambda x: op.nn.layer_norm(x, weight(9), weight(9), [-1]),
    "instance_norm": lambda x: op.nn.instance_norm(x, weight(8), weight(8), 1, [2, 3]),
    "group_norm": lambda x: op.nn.group_norm(x, weight(8), weight(8), 2, 1, [2, 3]),
    "argmax": lambda x: op.argmax(x, 1, keepdims=True),
    "cumsum": lambda x: op.cumsum(x, 2),
    "relu": op.nn.relu,
    "clip": lambda x: op.clip(x, 0, 6),
    "sigmoid": op.sigmoid,
    "tanh": op.tanh,
    "exp": op.exp,
    "erf": op.erf,
    "gelu": op.nn.gelu,
    "gelu_tanh": op.nn.gelu_tanh,
    "silu": op.nn.silu,
    "selu": op.nn.selu,
    "softplus": op.nn.softplus,
    "leakyrelu": lambda x: op.nn.leakyrelu(x, 0.1),
    "prelu": lambda x: op.nn.prelu(x, weight(8), 1),
    "power": lambda x: op.power(op.abs(x), relax.const(0.75)),
    "rsqrt": lambda x: op.rsqrt(op.abs(x)),
    "round": lambda x: op.round(op.multiply(x, relax.const(2.0))),
    "hard_swish": lambda x: op.multiply(
        x, op.clip(op.add(op.multiply(x, relax.const(1 / 6)), relax.const(0.5)), 0, 1)
    ),
    "floor_divide": lambda x: op.floor_divide(x, relax.const(0.3)),
    "compare": lambda x: op.where(op.less(x, relax.const(0.1)), x, op.negative(x)),
    "cast": lambda x: op.astype(op.multiply(x, relax.const(5.0)), "int32"),
    "reshape": lambda x: op.reshape(x, (2, 72, 11)),
    "permute": lambda x: op.permute_dims(x, [0, 2, 3, 1]),
    "flatten": op.flatten,
    "concat": lambda x: op.concat([x, op.nn.relu(x)], 1),
    "stack": lambda x: op.stack([x, op.nn.relu(x)], 2),
    "split": lambda x: op.split(x, [2, 5], 1),
    "split_even": lambda x: op.split(x, 2, 1),
    "slice": lambda x: op.strided_slice(x, [1, 3], [1, 8], [7, 0], [2, -3]),
    "slice_scatter": lambda x: op.slice_scatter(x, op.nn.relu(weight(2, 8, 3, 9)), 2, 7, 2, axis=2),
    "pad": lambda x: op.nn.pad(x, [0, 0, 1, 0, 2, 1, 0, 3], pad_value=0.5),
    "pad_reflect": lambda x: op.nn.pad(x, [0, 0, 0, 0, 2, 1, 1, 3], pad_mode="reflect"),
    "take": lambda x: op.take(x, relax.const(np.array([3, 0, 3], "int64")), axis=2),
    "broadcast": lambda x: op.broadcast_to(op.max(x, 1, keepdims=True), (2, 4, 11, 9)),
    "expand": lambda x: op.squeeze(op.expand_dims(x, [0, 2]), [2]),
    "tile": lambda x: op.tile(x, (1, 2, 1, 1)),
    "flip": lambda x: op.flip(x, 2),
    "repeat": lambda x: op.repeat(x, 2, 1),
    "triu": lambda x: op.triu(x, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", ON_IMAGE)
def test_operator_agrees_with_tvm(name: str) -> None:
    x = tensor(*X)
    mod = function([x], ON_IMAGE[name](x))
    inputs = random_inputs(mod)
    expected = run_tvm(mod, inputs)
    actual = evaluate(mod, inputs)
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert largest_error(a, e) < 1e-5


def test_no_operator_tested_here_is_answered_by_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above would prove nothing if the oracle asked TVM."""

    def refuse(*_: object) -> None:
        raise AssertionError("fell back to TVM")

    monkeypatch.setattr("collage.cost.reference.fallback.Compiled.evaluate", refuse)
    for build in ON_IMAGE.values():
        x = tensor(*X)
        mod = function([x], build(x))
        evaluate(mod, random_inputs(mod))


@pytest.mark.parametrize(
    ("left", "right"),
    [((5, 7), (7, 3)), ((2, 3, 5, 7), (3, 7, 4)), ((7,), (7, 3)), ((2, 5, 7), (7,))],
)
def test_matmul_agrees_with_tvm(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = tensor(*left), tensor(*right)
    mod = function([a, b], op.matmul(a, b))
    inputs = random_inputs(mod)
    assert largest_error(evaluate(mod, inputs)[0], run_tvm(mod, inputs)[0]) < 1e-5


def test_integers_divide_as_in_c() -> None:
    x = tensor(6, dtype="int32")
    values = np.array([-7, -1, 0, 1, 7, 8], "int32")
    for build, expected in (
        (op.divide, [-2, 0, 0, 0, 2, 2]),
        (op.floor_divide, [-3, -1, 0, 0, 2, 2]),
        (op.mod, [-1, -1, 0, 1, 1, 2]),
        (op.floor_mod, [2, 2, 0, 1, 1, 2]),
    ):
        mod = function([x], build(x, relax.const(3, "int32")))
        assert evaluate(mod, [values])[0].tolist() == expected


def test_erf_is_exact_enough() -> None:
    import math

    x = np.linspace(-6, 6, 4001)
    expected = np.array([math.erf(v) for v in x])
    assert np.max(np.abs(erf(x) - expected)) < 2e-7


def test_half_precision_is_rounded_once() -> None:
    x = tensor(4, 4096, dtype="float16")
    mod = function([x], op.sum(x, 1))
    value = RNG.uniform(0, 1, (4, 4096)).astype("float16")
    expected = value.astype("float64").sum(axis=1)
    actual = evaluate(mod, [value])[0]
    assert actual.dtype == np.float16
    assert np.max(np.abs(actual - expected) / expected) < 2**-11


def test_functions_inside_functions_are_followed() -> None:
    """A partitioned module as Relax BYOC has it: an inner Composite function, called by name."""
    w = RNG.standard_normal((7, 5)).astype("float32")
    x, y, z = tensor(3, 7), tensor(3, 7), tensor(3, 7)
    builder = relax.BlockBuilder()
    inner_builder = relax.BlockBuilder()
    with inner_builder.function("inner", [z]):
        inner_builder.emit_func_output(
            inner_builder.emit(op.nn.relu(inner_builder.emit(op.matmul(z, relax.const(w)))))
        )
    inner = inner_builder.get()["inner"].without_attr("global_symbol")
    inner = inner.with_attr("Composite", "some.matmul_relu")
    with builder.function("partition", [y], attrs={"Codegen": "some"}):
        local = builder.emit(inner)
        builder.emit_func_output(builder.emit(relax.Call(local, [y])))
    partition = builder.get().get_global_var("partition")
    with builder.function("main", [x]):
        out = builder.emit(relax.Call(partition, [x]))
        builder.emit_func_output(relax.Tuple([out, op.negative(out)]))
    value = RNG.standard_normal((3, 7)).astype("float32")
    first, second = evaluate(builder.get(), [value])
    expected = np.maximum(value @ w, 0)
    assert largest_error(first, expected) < 1e-6
    assert largest_error(second, -expected) < 1e-6


def test_unknown_operators_go_through_tvm() -> None:
    x = tensor(1, 2, 5, 5)
    name = "relax.image.resize2d"
    assert name not in OPERATORS
    mod = function([x], op.image.resize2d(x, (10, 10), method="nearest_neighbor"))
    value = RNG.standard_normal((1, 2, 5, 5)).astype("float32")
    assert largest_error(evaluate(mod, [value])[0], run_tvm(mod, [value])[0]) < 1e-6


def test_an_operator_nobody_runs_is_a_typed_error() -> None:
    x = tensor(4)
    call = relax.op.call_pure_packed(
        "no.such.function", x, ty_args=relax.TensorType((4,), "float32")
    )
    with pytest.raises(MeasurementError):
        evaluate(function([x], call), [np.zeros(4, "float32")])


def test_an_input_that_does_not_fit_is_a_typed_error() -> None:
    x = tensor(4)
    mod = function([x], op.exp(x))
    with pytest.raises(MeasurementError, match="input 'x'"):
        evaluate(mod, [np.zeros(5, "float32")])
    with pytest.raises(MeasurementError, match="1 inputs wanted"):
        evaluate(mod, [])


@pytest.mark.parametrize(
    ("actual", "expected", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.002], [1.0, 2.0], 1e-3),
        ([0.002, 2.0], [0.0, 2.0], 1e-3),
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.nan, 1.0], [0.0, 1.0], np.inf),
        ([1.0, 1.0], [np.nan, 1.0], np.inf),
        ([np.inf, 1.0], [-np.inf, 1.0], np.inf),
        ([1e-30, 0.0], [0.0, 0.0], np.inf),
    ],
)
def test_largest_error(actual: list[float], expected: list[float], error: float) -> None:
    measured = largest_error(np.array(actual), np.array(expected))
    assert measured == pytest.approx(error, rel=1e-6)


def test_largest_error_is_strict_about_shape_dtype_and_integers() -> None:
    one = np.ones((2, 3), "float32")
    assert largest_error(one.reshape(3, 2), one) == np.inf
    assert largest_error(one.astype("float64"), one) == np.inf
    assert largest_error(np.array([1, 2]), np.array([1, 3])) == np.inf


def test_a_small_network_agrees_with_onnxruntime() -> None:
    """A reference of another make: conv, pool, LRN's pieces, gemm, softmax."""
    w = RNG.standard_normal((8, 3, 3, 3)).astype("float32")
    b = RNG.standard_normal(8).astype("float32")
    fc = RNG.standard_normal((8 * 16, 10)).astype("float32")
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("AveragePool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "fc"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"], axis=-1),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8])],
        [info("y", onnx.TensorProto.FLOAT, [1, 10])],
        [onnx.numpy_helper.from_array(a, n) for a, n in ((w, "w"), (b, "b"), (fc, "fc"))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    value = RNG.standard_normal((1, 3, 8, 8)).astype("float32")
    expected = session.run(None, {"x": value})[0]
    x = tensor(1, 3, 8, 8)
    conv = op.add(op.nn.conv2d(x, relax.const(w), padding=1), relax.const(b.reshape(1, 8, 1, 1)))
    pool = op.nn.avg_pool2d(op.nn.relu(conv), 2, strides=2)
    out = op.nn.softmax(op.matmul(op.reshape(pool, (1, 128)), relax.const(fc)))
    assert largest_error(evaluate(function([x], out), [value])[0], expected) < 1e-5
