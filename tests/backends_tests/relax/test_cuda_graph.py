"""What TVM's passes make one CUDA graph of; no GPU is needed to see that."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
from tvm import relax
from tvm.relax import op, transform

from collage.backends.relax.modules.cuda_graph import copy_inputs
from collage.testing import graph


def _captures(mod: tvm.IRModule) -> int:
    """Graphs in a call, as TVM's pipeline for CUDA arranges them."""
    passes = [
        # Before it, kernels are scheduled; that makes one dataflow block of everything.
        *(transform.LegalizeOps(), transform.ConvertToDataflow(min_size=1)),
        transform.RewriteDataflowReshape(),
        *(transform.ToNonDataflow(), transform.RemovePurityChecking(), transform.CallTIRRewrite()),
        *(transform.StaticPlanBlockMemory(), transform.RewriteCUDAGraph()),
    ]
    config = {"relax.backend.use_cuda_graph": True}
    with tvm.target.Target("cuda"), tvm.transform.PassContext(config=config):
        captured = tvm.transform.Sequential(passes)(mod)
    return str(captured["main"]).count("run_or_capture")


@pytest.mark.parametrize("dtype", ["int64", "float16", "float32"])
def test_an_input_that_is_read_all_over_does_not_cut_the_graph(dtype: str) -> None:
    """As the fields of a recommender's one tensor of indices."""

    def fields(emit: Callable[[relax.Expr], relax.Var], x: relax.Var) -> relax.Expr:
        total = None
        for field in range(4):
            begin, end = [0, field, 0], [16, field + 1, 4]
            part = emit(op.strided_slice(x, [0, 1, 2], begin, end))
            wide = emit(op.add(part, part))
            total = wide if total is None else emit(op.add(total, wide))
        return emit(op.multiply(total, total))

    mod = graph([(16, 4, 4)], fields, dtype=dtype)
    assert _captures(mod) > 1
    copied = copy_inputs(mod)
    assert _captures(copied) == 1
    # The runtime's own copies are on CUDA's default stream, whatever stream kernels are on.
    assert "TVMTensorCopyFromTo" not in copied.script()


@pytest.mark.parametrize("dtypes", [("int64", "float16", "bool"), ("bfloat16", "int8", "int32")])
def test_several_inputs_do_not_cut_the_graph(dtypes: tuple[str, str, str]) -> None:
    """As the fields of a recommender that are tensors each, looked up one after the other."""

    def fields(emit: Callable[[relax.Expr], relax.Var], *inputs: relax.Var) -> relax.Expr:
        total = emit(op.zeros((16, 4), "float32"))
        for x in inputs:
            wide = emit(op.exp(emit(op.astype(x, "float32"))))
            total = emit(op.tanh(emit(op.add(total, wide))))
        return emit(op.multiply(total, total))

    builder = relax.BlockBuilder()
    inputs = [
        relax.Var(f"x{place}", relax.TensorType((16, 4), dtype))
        for place, dtype in enumerate(dtypes)
    ]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(fields(builder.emit, *inputs))
        builder.emit_func_output(result)
    mod = builder.finalize()
    assert _captures(mod) > 1
    copied = copy_inputs(mod)
    assert _captures(copied) == 1
    assert copied.script().count("def copy_input") == 1


def test_what_is_measured_alone_has_its_inputs_as_they_come() -> None:
    mod = graph([(8,), (8,)], lambda emit, x, y: op.add(x, emit(op.exp(y))))
    assert copy_inputs(mod).same_as(mod)


def test_an_input_with_one_reader_is_not_copied() -> None:
    mod = graph([(8,)], lambda emit, x: op.exp(x))
    assert copy_inputs(mod).same_as(mod)
