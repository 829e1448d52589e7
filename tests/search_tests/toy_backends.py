"""External backends for tests of the search: patterns and predicates, no code generation."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax
from tvm.relax.dpl import is_const, is_op, is_tuple, wildcard

from collage.backends.contract import (
    Availability,
    BackendTarget,
    BuildContext,
    ExternalBackend,
    Granularity,
    Match,
    PatternTriple,
    TargetSet,
    Verdict,
    registry,
)

DEVICE = tvm.target.Target("llvm")
TVM_TARGET = BackendTarget("tvm", DEVICE)
MAX_KERNEL = 5


def _small_kernel(match: Match) -> Verdict:
    size = int(match.annotated["weight"].ty.shape[2])
    return Verdict.yes() if size < MAX_KERNEL else Verdict.no(f"kernel {size} is too large")


def conv_triples(prefix: str) -> list[PatternTriple]:
    """Convolution alone, with bias, relu, residual; pooling, eltwise, concat; later ones first."""
    triples = [
        PatternTriple(f"{prefix}.relu", is_op("relax.nn.relu")(wildcard())),
        PatternTriple(f"{prefix}.add", is_op("relax.add")(wildcard(), wildcard())),
        PatternTriple(f"{prefix}.max_pool2d", is_op("relax.nn.max_pool2d")(wildcard())),
    ]
    concat = is_op("relax.concat")
    for width in (2, 4):
        fields = is_tuple([wildcard() for _ in range(width)])
        triples.append(PatternTriple(f"{prefix}.concat{width}", concat(fields)))

    def conv(suffix: str, *, bias: bool, residual: bool, relu: bool) -> PatternTriple:
        weight = is_const()
        pattern = is_op("relax.nn.conv2d")(wildcard(), weight)
        if bias:
            pattern = is_op("relax.add")(pattern, is_const())
        if residual:
            pattern = is_op("relax.add")(pattern, wildcard())
        if relu:
            pattern = is_op("relax.nn.relu")(pattern)
        name = f"{prefix}.conv2d{suffix}"
        return PatternTriple(name, pattern, _small_kernel, {"weight": weight})

    triples += [
        conv("", bias=False, residual=False, relu=False),
        conv("_bias", bias=True, residual=False, relu=False),
        conv("_bias_relu", bias=True, residual=False, relu=True),
        conv("_bias_sum", bias=True, residual=True, relu=False),
        conv("_bias_sum_relu", bias=True, residual=True, relu=True),
    ]
    return triples


def matmul_triples(prefix: str) -> list[PatternTriple]:
    """Matmul alone and with bias; softmax is not there, so regions end at it."""
    matmul = is_op("relax.matmul")
    return [
        PatternTriple(f"{prefix}.matmul", matmul(wildcard(), wildcard())),
        PatternTriple(
            f"{prefix}.matmul_bias",
            is_op("relax.add")(matmul(wildcard(), is_const()), is_const()),
        ),
    ]


class _ToyBackend(ExternalBackend):
    def probe(self) -> Availability:
        return Availability(True)

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        raise NotImplementedError("these backends are only searched with")


class RegionToy(_ToyBackend):
    """Joins convolutions and matmuls into regions."""

    name = "toyregion"
    granularity = Granularity.GRAPH

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        return conv_triples(self.name) + matmul_triples(self.name)


class OperatorToy(_ToyBackend):
    """Takes matmuls and convolutions one at a time."""

    name = "toyop"
    granularity = Granularity.OPERATOR

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        return matmul_triples(self.name) + conv_triples(self.name)[5:7]


REGION_TARGET = BackendTarget("toyregion", DEVICE)
OPERATOR_TARGET = BackendTarget("toyop", DEVICE)
ALL_TARGETS = TargetSet(TVM_TARGET, (REGION_TARGET, OPERATOR_TARGET))


def register() -> None:
    """Put the toys into the registry, once per process."""
    for backend in (RegionToy(), OperatorToy()):
        if backend.name not in registry.backend_names():
            registry.register_backend(backend)
