"""What a partition becomes for cuDNN, interpreted in numpy and held to the reference evaluator."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tvm
from tvm import relax

from benchmarks.gpu.cases import case_names, case_of
from benchmarks.gpu.cases.compiling import cuda_target, partition_case
from collage.backends.cudnn.options import CudnnOptions
from collage.backends.cudnn.partition import Partition, read_partition
from collage.backends.cudnn.problem import Graph, GraphBuilder, Kind
from collage.backends.relax.calls.strided_views import View
from collage.backends.relax.modules.lift_constants import lift_constants
from collage.backends.relax.static_shape import static_shape
from collage.cost.reference import evaluate, largest_error
from tests.backends_tests.cudnn import interpreter as cudnn_interpreter

RTOL = {"float16": 6e-3, "bfloat16": 4e-2, "float32": 1e-5}
"""The reference rounds after every operator, the interpreter never."""


def external_calls(mod: tvm.IRModule) -> Iterator[tuple[relax.Call, relax.Function]]:
    """The calls of partition functions in ``main``, and the functions."""
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            call = binding.value
            if isinstance(call, relax.Call) and isinstance(call.op, tvm.ir.GlobalVar):
                yield call, mod[call.op]


CASES = [(family, name) for family in ("cudnn", "cudnn_conv") for name in case_names(family)]


@pytest.mark.parametrize(("family", "name"), CASES)
def test_description_computes_what_the_operators_do(family: str, name: str) -> None:
    case = case_of(family, name)
    rng = np.random.default_rng()
    main = case.module["main"]
    inputs = {}
    for param in main.params:
        shape = static_shape(param)
        inputs[param.name] = rng.normal(size=shape).astype(str(param.ty.dtype))
    expected = evaluate(case.module, list(inputs.values()))[0]

    mod = lift_constants(partition_case(case, cuda_target()).module, {"cudnn"})
    (call, function), *more = external_calls(mod)
    assert not more
    partition = read_partition(function, CudnnOptions(**case.options), 90)
    given = [
        arg.value.numpy() if isinstance(arg, tvm.ir.GenericConst) else inputs[arg.name]
        for arg in call.args
    ]
    assert partition.num_arguments == len(given) + 1
    assert partition.arguments[-1] == len(given)
    operands = [given[index].astype(np.float64).reshape(-1) for index in partition.arguments[:-1]]
    memory = cudnn_interpreter.run(partition.graph, operands)
    actual = memory.reshape(expected.shape)
    assert np.isfinite(actual).all()
    error = largest_error(actual, expected.astype(np.float64))
    assert error < RTOL[str(main.params[0].ty.dtype)]


def partition_of(name: str, family: str = "cudnn") -> Partition:
    case = case_of(family, name)
    mod = lift_constants(partition_case(case, cuda_target()).module, {"cudnn"})
    (_, function), *_ = external_calls(mod)
    return read_partition(function, CudnnOptions(**case.options), 90)


def test_channels_last_data_has_unit_channel_strides() -> None:
    graph = partition_of("conv2d_bias_relu-float16-first-layer").graph
    x, w = (graph.slot_tensor(slot).view for slot in (0, 1))
    assert x == View((1, 3, 56, 56), (3 * 56 * 56, 1, 3 * 56, 3))
    assert w == View((64, 3, 7, 7), (7 * 7 * 3, 1, 7 * 3, 3))
    assert graph.slot_tensor(2).view.shape == (1, 64, 1, 1)
    assert graph.operations[0].ints == (3, 3, 3, 3, 2, 2, 1, 1)


def test_residual_is_added_before_the_bias() -> None:
    """The order that cuDNN's precompiled engines know."""
    graph = partition_of("conv2d_bias_add_relu-float16-1x1").graph
    kinds = [operation.kind for operation in graph.operations]
    assert kinds == [Kind.CONV, Kind.ADD, Kind.ADD, Kind.RELU]
    added = [graph.tensors[operation.inputs[1]] for operation in graph.operations[1:3]]
    assert [tensor.view.shape for tensor in added] == [(4, 256, 7, 7), (1, 256, 1, 1)]


def test_group_count_is_in_the_weights() -> None:
    graph = partition_of("conv2d_bias_clip-float16-depthwise").graph
    assert graph.slot_tensor(1).view.shape == (32, 1, 3, 3)
    assert graph.operations[-1].floats == (0.0, 2.0, 0.0)


def test_one_axis_is_a_plane_of_one_row() -> None:
    graph = partition_of("conv1d_bias_relu-float16-causal", "cudnn_conv").graph
    x, w = (graph.slot_tensor(slot).view for slot in (0, 1))
    assert x == View((2, 64, 1, 80), (64 * 80, 1, 64 * 80, 64))
    assert w == View((64, 64, 1, 3), (3 * 64, 1, 3 * 64, 64))
    assert graph.operations[0].ints == (0, 8, 0, 0, 1, 1, 1, 4)


def test_a_transposed_convolution_is_a_gradient() -> None:
    """Its result is the data of a convolution whose weights have that one's filters first."""
    graph = partition_of("conv2d_transpose_bias_relu-float16-grown", "cudnn_conv").graph
    assert graph.operations[0].kind is Kind.CONV_DGRAD
    assert graph.slot_tensor(1).view.shape == (32, 64, 3, 3)
    assert graph.slot_tensor(3).view.shape == (2, 64, 16, 12)
    # What output_padding adds fits in the stride: the padding stays even.
    assert graph.operations[0].ints == (1, 1, 1, 1, 2, 2, 1, 1)


def test_equal_work_is_the_same_graph() -> None:
    def build() -> Graph:
        builder = GraphBuilder("float16")
        view = View.dense((1, 2, 3))
        x, y = builder.input(view), builder.input(view)
        builder.apply(Kind.ADD, (x, y), view)
        return builder.finish()

    assert build() == build()
    assert len({build(), build()}) == 1
    assert build().name == "add float16 1x2x3 1x2x3 1x2x3"
