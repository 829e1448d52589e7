"""Reading partition functions of one composite, and walking through those of many."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import relax as R

from collage.backends.contract.errors import CodegenError, UnsupportedProblemError
from collage.backends.relax.partitions.composites import (
    Composite,
    CompositeCall,
    bindings_of,
    compiling,
    resolve,
)
from collage.backends.relax.partitions.walk import PartitionWalk, flatten, registration

# mypy: disable-error-code="no-untyped-def,valid-type,name-defined"


@R.function
def dense(
    bias: R.Tensor((4,), "float32"), x: R.Tensor((2, 3), "float32"), w: R.Tensor((4, 3), "float32")
) -> R.Tensor((2, 4), "float32"):
    # The arguments are in another order than the composite takes them.
    R.func_attr({"Codegen": "any"})

    @R.function
    def fused(
        data: R.Tensor((2, 3), "float32"),
        weights: R.Tensor((4, 3), "float32"),
        addend: R.Tensor((4,), "float32"),
    ) -> R.Tensor((2, 4), "float32"):
        R.func_attr({"Composite": "any.matmul_bias"})
        with R.dataflow():
            turned = R.permute_dims(weights)
            product = R.matmul(data, turned)
            total = R.add(addend, product)
            scaled = R.multiply(total, R.const(2.0, "float32"))
            R.output(scaled)
        return scaled

    with R.dataflow():
        same = bias
        y = fused(x, w, same)
        R.output(y)
    return y


@R.function
def region(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")) -> R.Tuple(
    R.Tensor((2, 3), "float32"), R.Tuple(R.Tensor((2, 3), "float32"))
):
    # Two calls of one composite that gives a tuple, an operator beside them, a nested result.
    R.func_attr({"Codegen": "any"})

    @R.function
    def both(a: R.Tensor((2, 3), "float32"), b: R.Tensor((2, 3), "float32")) -> R.Tuple(
        R.Tensor((2, 3), "float32"), R.Tensor((2, 3), "float32")
    ):
        R.func_attr({"Composite": "any.both"})
        with R.dataflow():
            total = R.add(a, b)
            difference = R.subtract(a, b)
            R.output(total, difference)
        return (total, difference)

    with R.dataflow():
        first = both(x, y)
        second = both(first[0], R.multiply(first[1], R.const(3.0, "float32")))
        R.output(first, second)
    return (second[1], (first[0],))


def test_a_composite_is_seen_through_its_variables() -> None:
    call = CompositeCall.of(dense, "any")
    composite = call.composite
    assert (call.symbol, composite.name) == ("dense", "any.matmul_bias")
    scaled = composite.root
    assert scaled.op.name == "relax.multiply"
    total, factor = composite.computed_and_other(scaled)
    assert total.op.name == "relax.add"
    assert isinstance(factor, tvm.ir.GenericConst)
    product, addend = composite.computed_and_other(total)
    assert product.op.name == "relax.matmul", "the computed operand is the right one"
    assert addend.same_as(composite.function.params[2])


def test_operands_are_found_among_the_partitions_parameters() -> None:
    call = CompositeCall.of(dense, "any")
    data, weights, addend = call.composite.function.params
    assert [call.position(operand) for operand in (data, weights, addend)] == [1, 2, 0]
    assert call.outside(data).same_as(dense.params[1])


def test_an_operand_that_is_no_argument_is_an_error() -> None:
    call = CompositeCall.of(dense, "any")
    total, factor = call.composite.computed_and_other(call.composite.root)
    with pytest.raises(CodegenError, match=r"'dense': an operand .* is a constant") as caught:
        call.position(factor)
    assert caught.value.value == "dense"
    with pytest.raises(CodegenError, match="is computed inside"):
        call.position(total)


def test_a_constant_that_is_passed_is_found_outside() -> None:
    fused = bindings_of(dense)
    (inner,) = [value for value in fused.values() if isinstance(value, relax.Function)]
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    weights = relax.const(np.ones((4, 3), "float32"))
    bias = relax.const(np.zeros(4, "float32"))
    callee = relax.Var("fused", inner.ty)
    result = relax.Var("y", inner.ret_ty)
    bindings = [
        relax.VarBinding(callee, inner),
        relax.VarBinding(result, relax.Call(callee, [x, weights, bias])),
    ]
    body = relax.SeqExpr([relax.BindingBlock(bindings)], result)
    partition = relax.Function([x], body, inner.ret_ty).with_attr("global_symbol", "constants_0")
    call = CompositeCall.of(partition, "any")
    assert call.outside(call.composite.function.params[1]).same_as(weights)
    with pytest.raises(CodegenError, match="constant"):
        call.position(call.composite.function.params[1])


def test_more_than_one_call_is_an_error_that_counts_composites() -> None:
    (inner,) = [value for value in bindings_of(dense).values() if isinstance(value, relax.Function)]
    alone = inner.with_attr("global_symbol", "alone_0")
    with pytest.raises(CodegenError, match="'alone_0' holds 0 composites; any takes one"):
        CompositeCall.of(alone, "any")
    assert Composite.of(inner).name == "any.matmul_bias"


def test_variables_without_a_binding_stand_for_themselves() -> None:
    bindings = bindings_of(dense)
    same = next(var for var in bindings if var.name == "same")
    assert resolve(same, bindings).same_as(dense.params[0])
    assert resolve(dense.params[1], bindings).same_as(dense.params[1])


HANDLERS: dict[str, Callable[[Texts, relax.Call], str | list[str]]] = {}
handles = registration(HANDLERS)


class Texts(PartitionWalk[str]):
    """Makes text of operators; remembers what it was asked to check."""

    handlers: ClassVar = HANDLERS

    def __init__(self, symbol: str) -> None:
        super().__init__(symbol)
        self.checked: list[str] = []

    def error(self, text: str) -> CodegenError:
        return CodegenError(f"{self.symbol}: {text}", value=self.symbol)

    def constant_tensor(self, constant: tvm.ir.GenericConst) -> str:
        return f"{constant.value.numpy():g}"

    def check(self, call: relax.Call, name: str, result: str | list[str]) -> None:
        self.checked.append(f"{name} {result}")


@handles("add", "subtract", "multiply")
def binary(walk: Texts, call: relax.Call) -> str:
    sign = {"relax.add": "+", "relax.subtract": "-", "relax.multiply": "*"}[call.op.name]
    return f"({walk.tensor(call.args[0])}{sign}{walk.tensor(call.args[1])})"


def walked(function: relax.Function) -> tuple[list[str], Texts]:
    walk = Texts("walked_0")
    return walk.walk(function, lambda index, parameter: f"{parameter.name}{index}"), walk


def test_a_walk_goes_through_composites_and_tuples() -> None:
    result, walk = walked(region)
    assert result == ["((x0+y1)-((x0-y1)*3))", "(x0+y1)"]
    assert walk.checked == [
        "relax.add (x0+y1)",
        "relax.subtract (x0-y1)",
        "relax.multiply ((x0-y1)*3)",
        "relax.add ((x0+y1)+((x0-y1)*3))",
        "relax.subtract ((x0+y1)-((x0-y1)*3))",
    ]


def test_operators_without_a_handler_are_an_error() -> None:
    with pytest.raises(CodegenError, match=r"operator relax\.permute_dims is not supported"):
        walked(dense)


def test_a_tuple_is_no_tensor() -> None:
    _, walk = walked(region)
    parameters = relax.Tuple(list(region.params))
    assert walk.tensors(parameters) == ["x0", "y1"]
    with pytest.raises(CodegenError, match="expected a tensor, found list"):
        walk.tensor(parameters)
    with pytest.raises(CodegenError, match="unexpected expression"):
        walk.item(relax.ShapeExpr([2, 3]))


def test_nested_tuples_are_flattened_in_order() -> None:
    assert flatten(["a", ["b", [], ["c"]], "d"]) == ["a", "b", "c", "d"]
    assert flatten("a") == ["a"]


@R.function
def gated(
    x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32"), y: R.Tensor((2, 4), "float32")
) -> R.Tensor((2, 4), "float32"):
    R.func_attr({"Composite": "any.matmul_silu_add"})
    with R.dataflow():
        product = R.matmul(x, w)
        gate = R.sigmoid(product)
        activated = R.multiply(gate, product)
        total = R.add(y, activated)
        R.output(total)
    return total


def test_a_chain_is_taken_apart_from_its_result_back() -> None:
    x, w, y = gated.params
    call, joined = Composite.of(gated).take_apart("relax.matmul", ["residual", "activation"])
    assert call.args[0].same_as(x) and call.args[1].same_as(w)
    assert list(joined) == ["residual"] and joined["residual"].same_as(y)


def test_a_chain_that_is_made_otherwise_is_refused() -> None:
    composite = Composite.of(gated)
    with pytest.raises(CodegenError, match=r"no relax\.nn\.conv2d where expected"):
        composite.take_apart("relax.nn.conv2d", ["residual", "activation"])
    with pytest.raises(CodegenError, match=r"no relax\.matmul where expected"):
        composite.take_apart("relax.matmul", ["residual"])
    with pytest.raises(CodegenError, match="no activation where expected"):
        composite.activated(relax.op.multiply(gated.params[2], gated.params[2]))


def test_a_problem_that_cannot_be_run_is_the_code_generator_s_error() -> None:
    expected = pytest.raises(CodegenError, match="any cannot compile 'f': too large")
    with expected as caught, compiling("any", "f"):
        raise UnsupportedProblemError("too large")
    assert caught.value.value == "f"
