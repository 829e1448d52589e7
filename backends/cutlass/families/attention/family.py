"""Fused attention: CUTLASS's example kernel, as the ``nvidia-cutlass`` wheel has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tvm import relax

from collage.backends.contract import PatternTriple
from collage.backends.contract.errors import CodegenError
from collage.backends.cutlass.families._base import (
    DTYPE_BITS,
    Configuration,
    KernelSource,
    KernelSpec,
    OperatorFamily,
    Reading,
)
from collage.backends.cutlass.families.attention.patterns import (
    FORMS,
    JOINED,
    PREFIX,
    ChainForm,
    pattern_table,
    read_chain,
)
from collage.backends.cutlass.families.attention.problem import (
    AttentionProblem,
    read_attention,
    read_joined,
)
from collage.backends.cutlass.families.gemm.render import ELEMENTS
from collage.backends.cutlass.library import TEMPLATES
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.relax.partitions.composites import Composite, compiling
from collage.backends.relax.tensor_spec import TensorSpec
from collage.backends.toolchain.source_templates import source_templates

_HOPPER_TILE = 128
"""Queries of a tile of Hopper's kernel."""
_LONG = 512
"""From so many queries on, Hopper's kernel is the best guess."""
_UNBOUNDED_DIM = 65536
"""``max_dim`` of the kernel that keeps its sums in memory."""


@dataclass(frozen=True)
class AttentionConfiguration(Configuration):
    """A block of the score matrix per thread block.

    ``kind`` is ``sm80``, or ``sm90`` for Hopper's warp-specialized kernel.

    Attributes
    ----------
    queries, keys : int
        Extents of the block; an ``sm80`` kernel has 1024 scores per warp.
    max_dim : int
        Longest head that fits; with at most ``keys`` elements a head's sums stay in registers.
    aligned : bool
        Operands are fetched in accesses of 16 bytes instead of four elements.
    causal : bool
        Whether the kernel masks what comes later; an ``sm80`` kernel is told at run time.
    """

    queries: int
    keys: int
    max_dim: int
    aligned: bool
    causal: bool = False


class AttentionFamily(OperatorFamily):
    """``relax.nn.attention``, with or without bias, of parts of one tensor; and its chain.

    Examples
    --------
    >>> AttentionFamily().patterns(CutlassOptions(), "sm_90a")[0].name.startswith("cutlass.")
    True
    """

    name: ClassVar[str] = "attention"
    prefixes: ClassVar[tuple[str, ...]] = (PREFIX,)

    def __init__(self) -> None:
        self._forms = {form.name: form for form in FORMS}
        self._templates = source_templates(
            TEMPLATES, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
        )

    def patterns(self, options: CutlassOptions, arch: str) -> Sequence[PatternTriple]:
        return pattern_table()

    def read(self, composite: Composite, options: CutlassOptions, arch: str) -> Reading:
        name = composite.name
        root = composite.root
        with compiling("cutlass", name):
            if name in self._forms:
                parts = _chain_parts(self._forms[name], composite)
                problem = read_chain(self._forms[name], parts, root)
                arguments = [parts[part] for part in ("q", "k", "v", "mask") if part in parts]
            elif name.endswith(JOINED):
                split = _split(composite)
                problem = read_joined(root, split)
                arguments = [split.args[0], *root.args[3:]]
            else:
                problem = read_attention(root)
                arguments = list(root.args)
        return Reading.of(composite, _spec(problem, arguments, root), arguments)

    def configurations(
        self, spec: KernelSpec, options: CutlassOptions, arch: str
    ) -> Sequence[Configuration]:
        queries, dim, dim_value = spec.sizes[2], spec.sizes[4], spec.sizes[5]
        width = 128 // DTYPE_BITS[spec.dtype]
        aligned = dim % width == 0 and dim_value % width == 0
        longest = max(dim, dim_value)
        if longest <= 64:
            blocks = [(64, 64, 64), (32, 64, 64)]
        elif longest <= 128:
            blocks = [(64, 128, 128), (32, 128, 128)]
        else:
            blocks = [(32, 128, _UNBOUNDED_DIM)]
        # Few queries leave rows of a block without work.
        if queries <= 32:
            blocks.reverse()
        made = [AttentionConfiguration("sm80", *block, aligned=aligned) for block in blocks]
        if options.generation(arch) >= 90 and _hopper_fits(spec):
            keys = 64 if dim <= 64 else 128
            causal = spec.sizes[6] != 0
            newer = AttentionConfiguration("sm90", 128, keys, keys, aligned, causal)
            made.insert(0 if queries >= _LONG else len(made), newer)
        return made

    def render(self, spec: KernelSpec, configuration: Configuration) -> KernelSource:
        assert isinstance(configuration, AttentionConfiguration)
        template = self._templates.get_template(f"attention/{configuration.kind}.cu.jinja")
        text = template.render(
            conf=configuration,
            element=ELEMENTS[spec.dtype],
            layout=spec.layout,
            bias=spec.epilogue == "bias",
            joined=spec.layout == "joined",
        )
        block = f"{configuration.queries}x{configuration.keys}"
        return KernelSource(f"attention_{configuration.kind}_{spec.dtype}_{block}", text)


def _hopper_fits(spec: KernelSpec) -> bool:
    """Whether Hopper's kernel computes a spec: half types, long enough, no bias."""
    _, _, queries, keys, dim, dim_value, mask = spec.sizes[:7]
    strides_fit = max(spec.sizes[7:16]) < 2**31
    # Its causal mask starts at the top left, and must cover what the last tile has too many.
    masked_fits = mask == 0 or queries == keys
    return (
        DTYPE_BITS[spec.dtype] == 16
        and spec.epilogue == "none"
        and dim == dim_value
        and dim % 8 == 0
        and dim <= 128
        and queries % 8 == 0
        and min(queries, keys) >= _HOPPER_TILE
        and masked_fits
        and strides_fit
    )


def _spec(
    problem: AttentionProblem, arguments: Sequence[relax.Expr], root: relax.Expr
) -> KernelSpec:
    return KernelSpec(
        operator="attention",
        sizes=problem.sizes(),
        dtype=problem.dtype,
        math="tensor" if problem.bits == 16 else "3xtf32",
        layout="joined" if problem.joined else problem.layout,
        epilogue="bias" if problem.has_bias else "none",
        inputs=tuple(TensorSpec.of(argument) for argument in arguments),
        output=TensorSpec.of(root),
        scalars=(problem.scale,),
    )


def _split(composite: Composite) -> relax.Call:
    for value in composite.bindings.values():
        if isinstance(value, relax.Call) and value.op.name == "relax.split":
            return value
    raise CodegenError(f"'{composite.name}' splits nothing", value=composite.name)


def _chain_parts(form: ChainForm, composite: Composite) -> dict[str, relax.Expr]:
    """The parts of a chain, from its result back to its operands."""
    softmax, v = map(composite.resolve, composite.root.args)
    parts = {"v": v, "softmax": softmax}
    at = composite.resolve(softmax.args[0])
    if form.mask:
        at, parts["mask"] = composite.computed_and_other(at)
    if form.scaling:
        at, parts["factor"] = composite.computed_and_other(at)
    q, permuted = map(composite.resolve, at.args)
    return parts | {"scores": at, "q": q, "permuted": permuted, "k": permuted.args[0]}


def family() -> AttentionFamily:
    """The family of attentions."""
    return AttentionFamily()
