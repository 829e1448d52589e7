"""Nobody is told what bundles run: onnxruntime keeps nothing of its user, and sends nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tvm.relax import op

from collage.backends.contract import BuildContext
from collage.testing.graphs import graph
from tests.backends_tests.whole_regions.regions import Regions

REGIONS = Regions("onnxruntime")
pytestmark = REGIONS.installed

_CHOICE = "ORT_DISABLE_TELEMETRY"

_WITHOUT_US = """
import sys, numpy, tvm
from tvm import relax
library = tvm.runtime.load_module(sys.argv[1])
vm = relax.VirtualMachine(library, tvm.cpu())
vm["case0"](tvm.runtime.tensor(numpy.ones((3, 64), "float32")))
assert "collage" not in sys.modules
assert "libonnxruntime" in open("/proc/self/maps").read()
"""


def kept(library: Path, home: Path, chosen: dict[str, str]) -> list[str]:
    """What is found in a user's folders after a run."""
    home.mkdir()
    plain = {k: v for k, v in os.environ.items() if k != _CHOICE and not k.startswith("XDG_")}
    subprocess.run(
        [sys.executable, "-P", "-c", _WITHOUT_US, str(library)],
        env={**plain, "HOME": str(home), **chosen},
        cwd=home,
        check=True,
        timeout=120,
    )
    return [str(path.relative_to(home)) for path in home.rglob("*") if "onnxruntime" in path.name]


def test_a_library_says_nothing_unless_the_user_wants_it(
    context: BuildContext, tmp_path: Path
) -> None:
    mod = graph([(3, 64)], lambda emit, x: op.nn.softmax(op.exp(x)))
    library = REGIONS.library({"one": mod}, context).path
    assert kept(library, tmp_path / "quiet", {}) == []
    if not kept(library, tmp_path / "wanted", {_CHOICE: "0"}):
        pytest.skip("this release of onnxruntime keeps nothing of its user")
