"""Convolutions: CUTLASS's implicit GEMM, forward, NHWC data and OHWI weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import jinja2
from tvm import relax

from collage.backends.base import PatternTriple
from collage.backends.cutlass.conv2d_configurations import Conv2dConfiguration, candidates
from collage.backends.cutlass.conv2d_patterns import (
    PREFIX,
    composite_name,
    epilogues,
    pattern_table,
)
from collage.backends.cutlass.conv2d_problem import (
    Conv2dProblem,
    Epilogue,
    UnsupportedConvolutionError,
    check_epilogue,
    float32_math,
    read_problem,
)
from collage.backends.cutlass.family import (
    Configuration,
    KernelSource,
    KernelSpec,
    OperatorFamily,
    Reading,
    TensorSpec,
)
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.errors import CodegenError
from collage.backends.patterns import tensor_dtype, tensor_shape

TEMPLATES = Path(__file__).resolve().parent / "templates"

ELEMENTS = {
    "float16": "cutlass::half_t",
    "bfloat16": "cutlass::bfloat16_t",
    "float32": "float",
}
MATH = {
    "tensor": "OpMultiplyAdd",
    "tf32": "OpMultiplyAdd",
    "3xtf32": "OpMultiplyAddFastF32",
}
ITERATORS = {
    "optimized": "kOptimized",
    "analytic": "kAnalytic",
    "few": "kFewChannels",
    "fixed": "kFixedChannels",
}
FUNCTORS = {
    "": "cutlass::epilogue::thread::Identity",
    "relu": "cutlass::epilogue::thread::ReLu",
    "relu6": "ReLu6",
    "sigmoid": "cutlass::epilogue::thread::Sigmoid",
    "silu": "cutlass::epilogue::thread::SiLu",
    "hardswish": "cutlass::epilogue::thread::HardSwish",
    "gelu": "cutlass::epilogue::thread::GELU",
    "gelu_tanh": "cutlass::epilogue::thread::GELU_taylor",
}
RESIDUAL_OPS = {"add": "cutlass::plus", "multiply": "cutlass::multiplies"}


class Conv2dFamily(OperatorFamily):
    """``relax.nn.conv2d`` with one group, and its epilogues."""

    name: ClassVar[str] = "conv2d"
    prefixes: ClassVar[tuple[str, ...]] = (PREFIX,)

    def __init__(self) -> None:
        self._epilogues = {composite_name(epilogue): epilogue for epilogue in epilogues()}
        self._by_name = {epilogue.name: epilogue for epilogue in epilogues()}
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(TEMPLATES),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )

    def patterns(self, options: CutlassOptions, arch: str) -> Sequence[PatternTriple]:
        return pattern_table(options)

    def read(
        self, name: str, composite: relax.Function, options: CutlassOptions, arch: str
    ) -> Reading:
        epilogue = self._epilogues.get(name)
        if epilogue is None:
            raise CodegenError(f"'{name}' is no fused convolution", value=name)
        bindings = {b.var: b.value for block in composite.body.blocks for b in block.bindings}
        convolution = next((v for v, call in bindings.items() if _is_call(call, "nn.conv2d")), None)
        if convolution is None:
            raise CodegenError(f"'{name}' holds no convolution", value=name)
        call = bindings[convolution]
        try:
            problem = read_problem(call, options)
            check_epilogue(problem, epilogue)
            half = problem.bits == 16
            math = "tensor" if half else float32_math(options)
        except UnsupportedConvolutionError as err:
            raise CodegenError(f"cutlass cannot compile '{name}': {err}", value=name) from err
        arguments = list(call.args)
        if epilogue.bias:
            arguments.append(_other_operand(name, bindings, convolution))
        if epilogue.residual:
            arguments.append(_residual(name, composite, bindings, epilogue))
        if not all(any(arg.same_as(p) for p in composite.params) for arg in arguments):
            raise CodegenError(f"'{name}': an operand is no parameter of it", value=name)
        spec = KernelSpec(
            operator="conv2d",
            sizes=problem.sizes(),
            dtype=problem.dtype,
            math=math,
            layout="nhwc",
            epilogue=epilogue.name,
            inputs=tuple(_tensor(arg) for arg in arguments),
            output=TensorSpec((problem.n, problem.p, problem.q, problem.k), problem.dtype),
        )
        return Reading(spec, tuple(arguments))

    def configurations(
        self, spec: KernelSpec, options: CutlassOptions, arch: str
    ) -> Sequence[Configuration]:
        problem = Conv2dProblem.from_sizes(spec.sizes, spec.dtype)
        return candidates(problem, self._by_name[spec.epilogue], options, arch)

    def launch_sizes(self, spec: KernelSpec, configuration: Configuration) -> tuple[int, ...]:
        assert isinstance(configuration, Conv2dConfiguration)
        return (*spec.sizes, configuration.split_k)

    def render(self, spec: KernelSpec, configuration: Configuration) -> KernelSource:
        assert isinstance(configuration, Conv2dConfiguration)
        epilogue = self._by_name[spec.epilogue]
        template = self._templates.get_template(f"conv2d_{configuration.kind}.cu.jinja")
        text = template.render(
            conf=configuration,
            epilogue=epilogue,
            element=ELEMENTS[spec.dtype],
            instruction="16, 8, 16" if spec.dtype != "float32" else "16, 8, 8",
            math_operator=MATH[spec.math],
            iterator=ITERATORS.get(configuration.iterator, ""),
            activation=FUNCTORS[epilogue.activation],
            final=FUNCTORS[epilogue.final],
            # Hopper's epilogue adds the residual before the one activation that there is.
            only_activation=FUNCTORS[epilogue.final or epilogue.activation],
            residual_op=RESIDUAL_OPS.get(epilogue.residual, ""),
            relu6="relu6" in (epilogue.activation, epilogue.final),
        )
        tile = f"{configuration.tile_m}x{configuration.tile_n}x{configuration.tile_k}"
        return KernelSource(f"conv2d_{spec.dtype}_{configuration.kind}_{tile}", text)


def _is_call(value: relax.Expr, operator: str) -> bool:
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") == f"relax.{operator}"


def _other_operand(
    name: str, bindings: Mapping[relax.Var, relax.Expr], convolution: relax.Var
) -> relax.Expr:
    """What is added to the convolution's result: its bias."""
    for value in bindings.values():
        if _is_call(value, "add"):
            left, right = value.args
            if left.same_as(convolution):
                return right
            if right.same_as(convolution):
                return left
    raise CodegenError(f"'{name}': nothing is added to the convolution", value=name)


def _residual(
    name: str,
    composite: relax.Function,
    bindings: Mapping[relax.Var, relax.Expr],
    epilogue: Epilogue,
) -> relax.Expr:
    """The tensor that is joined last, or last before the final activation."""
    at = bindings[composite.body.body]
    if epilogue.final:
        at = bindings[at.args[0]]
    if not _is_call(at, epilogue.residual):
        raise CodegenError(f"'{name}': no {epilogue.residual} where expected: {at}", value=name)
    given = [arg for arg in at.args if arg not in bindings]
    if len(given) != 1:
        raise CodegenError(f"'{name}': the residual is computed inside it", value=name)
    return given[0]


def _tensor(expr: relax.Expr) -> TensorSpec:
    shape = tensor_shape(expr)
    assert shape is not None
    return TensorSpec(shape, tensor_dtype(expr))


def family() -> Conv2dFamily:
    """The family of convolutions."""
    return Conv2dFamily()
