"""Fused attention: Hopper's kernel, and CUTLASS's example of the ``nvidia-cutlass`` wheel."""

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
    takes_bulk_copies,
)
from collage.backends.cutlass.families.gemm.render import ELEMENTS
from collage.backends.cutlass.library import TEMPLATES
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.relax.partitions.composites import Composite, compiling
from collage.backends.relax.tensor_spec import TensorSpec
from collage.backends.toolchain.source_templates import source_templates

_UNBOUNDED_DIM = 65536
"""``max_dim`` of the kernel that keeps its sums in memory."""


@dataclass(frozen=True)
class AttentionConfiguration(Configuration):
    """A block of the score matrix per thread block.

    ``kind`` is ``sm90`` (Hopper's bulk copies and products) or ``sm80`` (CUTLASS's example).

    Attributes
    ----------
    queries, keys : int
        Extents of the block; an ``sm80`` kernel has 1024 scores per warp.
    max_dim : int
        Longest head that fits; an ``sm80`` kernel keeps sums in registers where it is ``keys``.
    aligned : bool
        Operands are fetched in accesses of 16 bytes instead of four elements.
    """

    queries: int
    keys: int
    max_dim: int
    aligned: bool

    @property
    def is_quick(self) -> bool:
        return self.kind == "sm90"


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
        return pattern_table(hopper=options.generation(arch) >= 90)

    def read(self, composite: Composite, options: CutlassOptions, arch: str) -> Reading:
        name, root = composite.name, composite.root
        hopper = options.generation(arch) >= 90
        with compiling("cutlass", name):
            if name in self._forms:
                parts = _chain_parts(self._forms[name], composite)
                problem = read_chain(self._forms[name], parts, root, hopper=hopper)
                arguments = [parts[part] for part in ("q", "k", "v", "mask") if part in parts]
            elif name.endswith(JOINED):
                split = _split(composite)
                problem = read_joined(root, split, hopper=hopper)
                arguments = [split.args[0], *root.args[3:]]
            else:
                problem = read_attention(root, hopper=hopper)
                arguments = list(root.args)
        return Reading.of(composite, _spec(problem, arguments, root), arguments)

    def configurations(
        self, spec: KernelSpec, options: CutlassOptions, arch: str
    ) -> Sequence[Configuration]:
        if options.generation(arch) >= 90 and takes_bulk_copies(spec.dtype, spec.sizes):
            return _hopper_blocks(spec)
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
        return [AttentionConfiguration("sm80", *block, aligned=aligned) for block in blocks]

    def render(self, spec: KernelSpec, configuration: Configuration) -> KernelSource:
        assert isinstance(configuration, AttentionConfiguration)
        template = self._templates.get_template(f"attention/{configuration.kind}.cu.jinja")
        text = template.render(
            conf=configuration,
            element=ELEMENTS[spec.dtype],
            dtype=spec.dtype,
            layout=spec.layout,
            bias=spec.epilogue == "bias",
            joined=spec.layout == "joined",
        )
        block = f"{configuration.queries}x{configuration.keys}"
        return KernelSource(f"attention_{configuration.kind}_{spec.dtype}_{block}", text)


def _hopper_blocks(spec: KernelSpec) -> list[AttentionConfiguration]:
    """The best guess first. Of 27 problems (H200) each of these was the fastest of some; with heads
    of 128 elements pieces of 160 or 176 keys gained 2 % at most."""
    _, _, queries, keys, *dims = spec.sizes[:6]
    dim = -(-max(dims) // 64) * 64
    if dim > 128:
        blocks = [(128, 64)]
    elif dim > 64:
        blocks = [(128, 128), (64, 128), (64, 64)]
    else:
        # Pieces of equal extents waste least, where few of them hold all keys.
        pieces = -(-keys // 160)
        equal = -(-keys // pieces // 16) * 16
        blocks = [(64, 128), (64, 64), (128, 128)]
        if keys <= 640 and equal not in (64, 128):
            blocks.append((64, equal))
        # With a bias registers do not suffice for three warp groups.
        if queries > 640 and spec.epilogue != "bias":
            blocks.append((192, 128))
    if queries <= 64:
        blocks = [block for block in blocks if block[0] == 64] or blocks
    if keys <= 64:
        blocks = [block for block in blocks if block[1] <= 64] or blocks
    return [AttentionConfiguration("sm90", *block, dim, aligned=True) for block in blocks]


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
