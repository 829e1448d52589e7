"""Open dimensions of PyTorch's modules and exported programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collage
from collage.backends.contract.errors import InputError, ModelError, ShapeError
from collage.backends.devices import CPU
from collage.cost.models.roofline import DeviceSpec, RooflineCostModel
from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.pipeline.shapes.bucketed import import_buckets
from collage.pipeline.shapes.buckets import buckets_of
from tests.collage_tests.pipeline.whole_way.test_torch_modules import assert_same

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


def test_open_dimensions_of_exported_programs() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.linear = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 5)

        def forward(self, x, more):
            return self.linear(torch.relu(self.conv(x)).mean((2, 3))) + more

    net, batch = Net().eval(), torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(
        *(net, (torch.randn(2, 3, 8, 8), torch.randn(2, 5))),
        dynamic_shapes={"x": {0: batch}, "more": {0: batch}},
    )
    (main,) = import_buckets(program, CPU, buckets_of({"x": ["1:4", 3, 8, 8]}))
    assert main.padding is not None and main.padding.sizes == (3,)
    assert main.padding.inputs == ((0, 0), (1, 0))
    assert load_model(program, shapes={"batch": (3,)}).inputs[1].shape == (3, 5)
    for variant in main.variants:
        (shape, _) = (info.shape for info in variant.inputs)
        x, more = torch.randn(shape), torch.randn(shape[0], 5)
        (found,) = evaluate(variant.mod, [x.numpy(), more.numpy()])
        with torch.no_grad():
            np.testing.assert_allclose(found, net(x, more).numpy(), rtol=1e-3, atol=1e-4)
    with pytest.raises(ShapeError, match="does not take these shapes"):
        load_model(program, shapes={"x": (9, 3, 8, 8)})
    with pytest.raises(ShapeError, match="'x' has the open dimension"):
        load_model(program)


def test_open_dimensions_that_depend_on_others() -> None:
    class Net(torch.nn.Module):
        def forward(self, x, y):
            return x.sum() + y.sum()

    rows = torch.export.Dim("rows", min=2, max=9)
    program = torch.export.export(
        *(Net(), (torch.ones(3, 3), torch.ones(7))),
        dynamic_shapes={"x": {0: rows}, "y": {0: 2 * rows + 1}},
    )
    for shapes in ({"x": (4, 3)}, {"y": (9,)}, {"x": (4, 3), "y": (9,)}):
        found = [info.shape for info in load_model(program, shapes=shapes).inputs]
        assert found == [(4, 3), (9,)]
    for shapes in ({"y": (8,)}, {"x": (4, 3), "y": (11,)}, {"x": (4, 2)}, {"x": (10, 3)}, {}):
        with pytest.raises(ShapeError):
            load_model(program, shapes=shapes)


def test_open_dimensions_on_another_device() -> None:
    from collage.importers.torch.dynamic import with_shapes

    rows = torch.export.Dim("rows", min=2, max=9)
    with torch.device("meta"):
        program = torch.export.export(
            torch.nn.Linear(3, 3), (torch.ones(3, 3),), dynamic_shapes={"input": {0: rows}}
        )
    found, _ = with_shapes(program, {"input": (4, 3)})
    (x,) = [
        node.meta["val"]
        for node in found.graph.find_nodes(op="placeholder")
        if node.name == "input"
    ]
    assert (str(x.device), tuple(x.shape)) == ("meta", (4, 3))


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
