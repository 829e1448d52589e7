"""Patterns speak of PyTorch's modules."""

from __future__ import annotations

import pytest

from collage.backends.devices import CPU
from collage.pipeline.imported import import_model
from collage.pipeline.restrict import restrict
from collage.targets import resolve_targets
from tests.collage_tests.conftest import TARGETS

torch = pytest.importorskip("torch", exc_type=ImportError)
nn = torch.nn
pytestmark = pytest.mark.torch


def test_names_of_pytorch_modules_are_kept() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = nn.Sequential(
                nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)
            )
            self.head = nn.Sequential(nn.Flatten(), nn.Linear(8 * 36, 5), nn.Softmax(-1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.head(self.backbone(x))
            return result

    program = torch.export.export(Net().eval(), (torch.randn(1, 3, 10, 10),))
    imported = import_model(program, CPU)
    graph = imported.graph
    wishes = restrict(graph, resolve_targets(TARGETS), {"backbone.*": "onednn"}, {"head.2*": "tvm"})
    by_op = {op: {i for i in range(len(graph)) if graph.op_name(i) == op} for op in
             ("nn.conv2d", "nn.relu", "matmul", "nn.softmax")}  # fmt: skip
    pinned = {i for i, why in wishes.restrictions.closed["openblas"].items() if "pinned" in why}
    assert by_op["nn.conv2d"] | by_op["nn.relu"] <= pinned
    assert not by_op["matmul"] & pinned
    assert by_op["nn.softmax"] <= set(wishes.restrictions.closed["tvm"])
