"""Hopper's kernels of products and convolutions: one template, a tile and what is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from collage.backends.cutlass.library import TEMPLATES
from collage.backends.toolchain.source_templates import source_templates


@dataclass(frozen=True)
class HopperTile:
    """What a thread block computes at once.

    Attributes
    ----------
    rows, columns, depth : int
        Multiples of 64; at most 256 rows and columns.
    """

    rows: int
    columns: int
    depth: int = 64


@dataclass(frozen=True)
class HopperKernel:
    """A class template of ``templates/``, and how its operands lie.

    Attributes
    ----------
    header : str
        Where it is.
    name : str
        In the namespace ``collage``.
    deep_a, deep_b : bool
        Whether operands are contiguous along the reduced axis.
    """

    header: str
    name: str
    deep_a: bool = True
    deep_b: bool = True


def render_hopper(
    kernel: HopperKernel, tile: HopperTile, dtype: str, *, heavy: bool, source: bool
) -> str:
    """The text of a kernel unit.

    Parameters
    ----------
    kernel : HopperKernel
        What is computed.
    tile : HopperTile
        By one thread block.
    dtype : str
        ``float16`` or ``bfloat16``.
    heavy : bool
        Whether a costly activation may follow.
    source : bool
        Whether a residual comes in.

    Returns
    -------
    str
        CUDA source; extents are known at run time only.
    """
    templates = source_templates(TEMPLATES, {"cpp": lambda flag: "true" if flag else "false"})
    return templates.get_template("hopper/unit.cu.jinja").render(
        header=kernel.header,
        kernel=kernel.name,
        deep_a=kernel.deep_a,
        deep_b=kernel.deep_b,
        tile=tile,
        dtype=dtype,
        heavy=heavy,
        source=source,
    )
