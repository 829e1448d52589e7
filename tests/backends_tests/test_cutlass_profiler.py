"""Running kernel units in processes of their own: built for real, and contained when they fail."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from collage.backends.base import BuildContext
from collage.backends.cuda_runtime import has_device
from collage.backends.cutlass.family import KernelSource
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.cutlass.profiler import GpuProfiler, gpu_profiler
from collage.backends.cutlass.tuning import Job
from collage.backends.cutlass.unit import Unit
from collage.config import Config
from tests.backends_tests.cutlass_reading import options_of, read_case
from tests.contracts.cuda_cases import case_of
from tests.contracts.cuda_compile import ARCH

pytestmark = [pytest.mark.cuda, pytest.mark.timeout(900)]

CASE = case_of("cutlass", "matmul_bias_relu_add-float16-2x64x128-128x192-sm80")


def test_jobs_are_built_and_run_or_their_failure_is_told(tmp_path: Path) -> None:
    partition = read_case(CASE)
    spec, family = partition.spec, partition.family
    configuration = family.configurations(spec, options_of(CASE), ARCH)[0]
    unit = Unit.of(family.render(spec, configuration))
    good = Job(spec, configuration, unit, family.launch_sizes(spec, configuration))
    broken = Job(spec, configuration, Unit.of(KernelSource("broken", "int x = y;\n")), good.sizes)

    context = BuildContext(Config.from_environment().cache_dir, tmp_path)
    profiler = GpuProfiler("any", CutlassOptions(), context, ARCH)
    ran, refused = profiler.run([good, broken])
    assert refused.sec is None
    assert refused.error.startswith("it does not compile")
    assert '"y" is undefined' in refused.error
    if has_device():
        assert ran.error == ""
        assert ran.sec is not None and 0 < ran.sec < 1e-2
        assert ran.sample is not None
        assert ran.sample.size == min(65536, math.prod(spec.output.shape))
    else:
        # The program started and came as far as the driver.
        assert ran.sec is None
        assert "it failed with exit status 2: cudaMalloc" in ran.error


def test_a_gpu_of_another_architecture_is_not_measured_on(tmp_path: Path) -> None:
    context = BuildContext(tmp_path, tmp_path)
    assert gpu_profiler(CutlassOptions(), context, "sm_52") is None
