"""Every tile that the heuristic may propose compiles, with all that can follow a product."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu.cases.compiling import ARCH
from collage.backends.contract import BuildContext
from collage.backends.cutlass.families import KernelSpec
from collage.backends.cutlass.families.gemm.configurations import (
    SM90_TILES,
    TILES,
    GemmConfiguration,
    Tile,
)
from collage.backends.cutlass.families.gemm.family import family, spec_of
from collage.backends.cutlass.families.gemm.patterns import Form
from collage.backends.cutlass.families.gemm.problem import Operand, plan
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.cutlass.unit import Unit
from collage.config import Config

pytestmark = [pytest.mark.cuda, pytest.mark.slow, pytest.mark.timeout(1800)]

WHOLE = Form(bias=True, activation="gelu", residual="add")
OPTIONS = {
    "tensor": CutlassOptions(),
    "tf32": CutlassOptions(allow_tf32=True),
    "3xtf32": CutlassOptions(),
    "simt": CutlassOptions(use_3xtf32=False),
}
KERNELS = [
    *(("sm90", "tensor", tile) for tile in SM90_TILES),
    *(("sm80", math, tile) for math, tiles in TILES.items() for tile in tiles),
]


@pytest.mark.parametrize(("kind", "math", "tile"), KERNELS)
def test_tile_compiles(kind: str, math: str, tile: Tile, tmp_path: Path) -> None:
    dtype = "float16" if math == "tensor" else "float32"
    square = Operand((768, 768))
    spec = spec_of(plan(square, square, (768, 768), dtype), WHOLE, OPTIONS[math])
    assert spec.math == math
    widths = {"simt": (1, 1, 1), "tensor": (8, 8, 8)}.get(math, (4, 4, 4))
    assert compiled_bytes(spec, GemmConfiguration(kind, tile, widths), tmp_path) > 10_000


@pytest.mark.parametrize("tile", SM90_TILES)
def test_tile_compiles_for_results_with_odd_rows(tile: Tile, tmp_path: Path) -> None:
    operands = Operand((768, 768)), Operand((767, 768), transposed=True)
    spec = spec_of(plan(*operands, (768, 767), "bfloat16"), WHOLE, CutlassOptions())
    assert compiled_bytes(spec, GemmConfiguration("sm90", tile, (8, 8, 1)), tmp_path) > 10_000


def compiled_bytes(spec: KernelSpec, configuration: GemmConfiguration, folder: Path) -> int:
    """The size of a kernel's object file."""
    unit = Unit.of(family().render(spec, configuration))
    context = BuildContext(Config.from_environment().cache_dir, folder)
    return unit.compile(folder, CutlassOptions(), context, ARCH).stat().st_size
