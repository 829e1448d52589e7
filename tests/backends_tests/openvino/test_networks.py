"""Regions as OpenVINO's models: in fewer digits, written alike, refused with its words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.compile import external_functions
from collage.backends.contract import BuildContext
from collage.backends.contract.errors import CodegenError, TargetError
from collage.backends.openvino.codegen import compile_functions
from collage.backends.openvino.library import cpu_capabilities, find_installation
from collage.backends.openvino.problem import write_region
from collage.targets import resolve_targets
from collage.testing.graphs import constant, graph
from tests.backends_tests.openvino.support import backend, installed, partitioned, target
from tests.backends_tests.whole_regions.networks import NETWORKS, error_as_one_region

pytestmark = installed


@pytest.mark.skipif(
    installed.args[0] or "BF16" not in cpu_capabilities(),
    reason="OpenVINO does not compute in bfloat16 on this processor",
)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_in_bfloat16_is_right(name: str, context: BuildContext) -> None:
    kind = {"kind": "openvino", "precision": "bfloat16"}
    off = error_as_one_region(name, kind, context)
    assert off < 1e-1
    assert off > 2e-5, "it was computed in float32"


def test_equal_regions_are_equal_text(tmp_path: Path) -> None:
    weights = constant(8, 8)
    mod = graph([(3, 8)], lambda emit, x: op.nn.relu(emit(op.matmul(x, weights))))
    (function,) = external_functions(partitioned(mod, target()), backend())[:1]
    first, second = (write_region(function).write(tmp_path) for _ in range(2))
    assert first == second


def test_importing_it_reports_to_nobody() -> None:
    code = (
        "import sys\n"
        "from collage.backends.openvino.library import python_api\n"
        "assert python_api().Core().available_devices\n"
        "assert not [name for name in sys.modules if 'telemetry' in name]\n"
        "assert 'openvino.tools.ovc' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_openvino_refuses_is_an_error_with_its_words(context: BuildContext) -> None:
    # A region that the patterns would not have let through.
    x = relax.Var("x", relax.TensorType((3, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("refused", [x], attrs={"global_symbol": "refused"}):
        builder.emit_func_output(builder.emit(op.sort(x)))
    with pytest.raises(CodegenError, match=r"relax\.sort is not supported") as caught:
        compile_functions(
            [builder.get()["refused"]], target().options, find_installation(), context
        )
    assert caught.value.value == "refused"


def test_a_precision_is_one_of_three() -> None:
    with pytest.raises(TargetError, match="bfloat16"):
        resolve_targets(["llvm", {"kind": "openvino", "precision": "int4"}])
