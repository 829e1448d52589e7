"""A search imports PyTorch where the model is PyTorch's, and who uses it later finds it as ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest

_NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[2, 3] x) => (float[2, 3] y) { y = Exp(x) }"""

_SEARCH = """
import sys
import collage
result = collage.optimize("net.onnx", ["llvm"], strategy="single:tvm", cost_model=None)
assert "tvm" in sys.modules and "torch" not in sys.modules
result.export("net.bundle")
"""

_THEN = """
import torch
x = torch.rand(2, 3)
bundle = collage.load("net.bundle")
(y,) = [bundle(x)] if torch.is_tensor(bundle(x)) else bundle(x)
torch.testing.assert_close(y, torch.exp(x))

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 5)

    def forward(self, x):
        return torch.relu(self.layer(x.to(torch.float32)))

net = Net().eval()
again = collage.optimize(net, ["llvm"], strategy="single:tvm", example_inputs=(x,))
made = collage.load(again.export("other.bundle"))
found = made(x)
torch.testing.assert_close(found, net(x).detach(), atol=1e-5, rtol=1e-5)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(_NET), tmp_path / "net.onnx")
    return tmp_path


def _run(program: str, folder: Path) -> None:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_search_of_an_onnx_file_imports_no_pytorch(folder: Path) -> None:
    pytest.importorskip("torch")
    _run(_SEARCH, folder)


@pytest.mark.torch
def test_pytorch_that_is_imported_afterwards_works(folder: Path) -> None:
    _run(_SEARCH + _THEN, folder)


def test_other_threads_import_it_meanwhile(folder: Path) -> None:
    pytest.importorskip("torch")
    _run(
        """
import sys, threading
from collage import _tvm_alone
missing = _tvm_alone._Missing()
sys.meta_path.insert(0, missing)
found = []
thread = threading.Thread(target=lambda: found.append(__import__("torch.version").__name__))
try:
    import torch
except ModuleNotFoundError as err:
    assert err.name == "torch"
else:
    raise AssertionError("this thread found it")
thread.start()
thread.join()
assert found == ["torch"], found
""",
        folder,
    )
