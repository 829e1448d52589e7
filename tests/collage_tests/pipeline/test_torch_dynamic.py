"""Open dimensions of PyTorch's modules and exported programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import collage
from collage.backends.contract.errors import InputError, ModelError, ShapeError
from collage.cost.models.roofline import DeviceSpec, RooflineCostModel
from tests.collage_tests.pipeline.test_torch_modules import assert_same

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


class Masked(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Two inputs with a dimension in common, one of them in a dict, and numbers that are given."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(6, 4)

    def forward(self, x: Any, batch: Any, scale: float = 1.0, *, more: Any = None) -> Any:
        y = torch.softmax(self.dense(x) * scale, -1) * batch["mask"][:, None]
        return {"y": y, "rows": (y.sum(1), None)}


def test_a_module_with_open_dimensions_is_compiled_for_buckets(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Masked().train()
    rows = torch.export.Dim("rows", min=1, max=8)
    estimated = RooflineCostModel(DeviceSpec("a processor", 1e12, 1e12, 1e12, bytes_per_sec=50e9))
    options: dict[str, Any] = {
        "example_inputs": {"x": torch.rand(3, 6), "batch": {"mask": torch.rand(3)}, "scale": 2.0},
        "dynamic_shapes": {"x": {0: rows}, "batch": {"mask": {0: rows}}, "scale": None},
        "cost_model": estimated,
    }
    result = collage.optimize(module, ["llvm"], shapes={"x": ["1:6", 6]}, **options)
    assert module.training and result.model == "Masked"
    bundle = collage.load(result.export(tmp_path / "bundle"))
    for count in range(1, 7):
        x, batch = torch.randn(count, 6), {"mask": torch.rand(count)}
        with torch.no_grad():
            assert_same(bundle(x, batch, 2.0), module(x, batch, 2.0))
    with pytest.raises(InputError, match="'x' must be"):
        bundle(torch.randn(7, 6), {"mask": torch.rand(7)}, 2.0)
    with pytest.raises(InputError, match="input 'scale' is missing"):
        bundle(x, batch)
    one = collage.optimize(module, ["llvm"], shapes={"x": [5, 6]}, **options)
    assert [info.shape for info in one.inputs] == [(5, 6), (5,)]


@pytest.mark.parametrize(
    ("module", "options", "error", "message"),
    [
        (
            "x.onnx",
            {"dynamic_shapes": {}},
            InputError,
            r"are for a torch\.nn\.Module, not for a str",
        ),
        (torch.nn.ReLU(), {"shapes": {"input": ["1:4", 3]}}, ShapeError, "give dynamic_shapes"),
        (
            torch.nn.ReLU(),
            {"dynamic_shapes": {"input": {0: torch.export.Dim("n")}}},
            ShapeError,
            "'input' has the open dimension",
        ),
        (
            torch.nn.ReLU(),
            {"dynamic_shapes": {"x": {0: torch.export.Dim("n")}}},
            ModelError,
            "torch.export cannot export 'ReLU'",
        ),
    ],
)
def test_open_dimensions_that_do_not_fit_are_refused(
    module: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        collage.optimize(module, ["llvm"], example_inputs=(torch.zeros(2, 3),), **options)
