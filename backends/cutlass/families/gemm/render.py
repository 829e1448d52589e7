"""From a spec and a configuration to the CUDA source of one kernel unit."""

from __future__ import annotations

from collage.backends.cutlass.families._base import KernelSource, KernelSpec
from collage.backends.cutlass.families.gemm.configurations import GemmConfiguration
from collage.backends.cutlass.families.hopper import HopperKernel, HopperTile, render_hopper
from collage.backends.cutlass.library import TEMPLATES
from collage.backends.toolchain.source_templates import source_templates

ACTIVATION_CODES = {
    "": 0, "relu": 1, "hardswish": 2, "relu6": 3,
    "gelu": 4, "gelu_tanh": 5, "silu": 6, "sigmoid": 7,
}  # fmt: skip
"""``Activation`` in ``templates/collage_activation.h``."""
LAST_LIGHT = 3
"""Activations up to this one are cheap: their kernels are compiled without the costly ones."""
RESIDUAL_CODES = {"": 0, "add": 1, "multiply": 2}
"""``Residual`` in ``templates/collage_activation.h``."""

ELEMENTS = {"float16": "cutlass::half_t", "bfloat16": "cutlass::bfloat16_t", "float32": "float"}
LAYOUTS = {"r": "cutlass::layout::RowMajor", "c": "cutlass::layout::ColumnMajor"}
INSTRUCTIONS = {
    "tensor": (16, 8, 16),
    "tf32": (16, 8, 8),
    "3xtf32": (16, 8, 8),
    "simt": (1, 1, 1),
}


def render(spec: KernelSpec, configuration: GemmConfiguration) -> KernelSource:
    """The kernel unit; it takes all extents at run time, and the epilogue as far as it can.

    Parameters
    ----------
    spec : KernelSpec
        A product with its epilogue.
    configuration : GemmConfiguration
        Tiles, stages and the width of accesses.

    Returns
    -------
    KernelSource
        Named after what its text depends on.
    """
    split = configuration.kind == "split_k"
    heavy = max(spec.sizes[9], spec.sizes[11]) > LAST_LIGHT
    source = spec.sizes[10] != RESIDUAL_CODES[""]
    if configuration.kind == "sm90":
        kernel = HopperKernel(
            "gemm/sm90.h", "GemmSm90", spec.layout[0] == "r", spec.layout[1] == "c"
        )
        tile = HopperTile(*configuration.tile.shape)
        text = render_hopper(kernel, tile, spec.dtype, heavy=heavy, source=source)
        return KernelSource(_stem(spec, configuration, heavy, source), text)
    # The kernel that sums slices does all of the epilogue, whatever it is.
    heavy, source = heavy and not split, source and not split
    values = {
        "kind": configuration.kind,
        "element": ELEMENTS[spec.dtype],
        "layout_a": LAYOUTS[spec.layout[0]],
        "layout_b": LAYOUTS[spec.layout[1]],
        "math": spec.math,
        "tile": configuration.tile,
        "instruction": INSTRUCTIONS[spec.math],
        "alignments": configuration.alignments,
        "heavy": heavy,
        "source": source,
    }
    templates = source_templates(TEMPLATES, {"cpp": lambda flag: "true" if flag else "false"})
    text = templates.get_template("gemm/gemm.cu.jinja").render(values)
    return KernelSource(_stem(spec, configuration, heavy, source), text)


def _stem(spec: KernelSpec, configuration: GemmConfiguration, heavy: bool, source: bool) -> str:
    """For example ``gemm_sm90_float16_128x256x64_rr_heavy_source``."""
    words = ["gemm", configuration.kind]
    words.append(spec.dtype if spec.math == "tensor" else spec.math)
    words += ["x".join(map(str, configuration.tile.shape)), spec.layout]
    words += ["heavy"] * heavy + ["source"] * source
    return "_".join(words)
