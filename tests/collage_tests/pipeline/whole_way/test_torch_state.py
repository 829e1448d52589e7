"""Bundles of PyTorch modules that keep something from call to call."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import collage
from collage.backends.contract.errors import BundleError, InputError
from collage.cli import app
from collage.cost.models.roofline import DeviceSpec, RooflineCostModel

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


class Stream(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A convolution over a signal in pieces, and how many there were."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv1d(3, 4, 3)
        self.register_buffer("left", torch.randn(1, 3, 2))
        self.register_buffer("pieces", torch.zeros((), dtype=torch.int64))

    def forward(self, piece: Any) -> Any:
        piece = torch.cat([self.left, piece], 2)
        self.left.copy_(piece[:, :, -2:])
        self.pieces += 1
        return {"y": self.convolution(piece), "count": self.pieces}


def _costs() -> RooflineCostModel:
    return RooflineCostModel(DeviceSpec("a processor", 1e12, 1e12, 1e12, bytes_per_sec=50e9))


def _draw() -> Any:
    return torch.randn(1, 3, 6)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    torch.manual_seed(3)
    net = Stream().eval()
    result = collage.optimize(net, ["llvm"], example_inputs=(_draw(),), cost_model=_costs())
    assert any("goes on from call to call" in remark for remark in result.report.remarks)
    return net, result.export(tmp_path_factory.mktemp("state") / "stream.bundle")


def _agree(net: Any, found: Any, piece: Any) -> None:
    with torch.no_grad():
        expected = net(piece)
    np.testing.assert_allclose(found["y"], expected["y"].numpy(), rtol=2e-5, atol=2e-5)
    assert int(found["count"]) == int(expected["count"])


def test_calls_go_on_from_each_other(exported: tuple[Any, Path]) -> None:
    bundle, net, other = collage.load(exported[1]), *map(copy.deepcopy, [exported[0]] * 2)
    own = bundle.new_state()
    for call in range(4):
        piece = _draw()
        _agree(net, bundle(piece), piece)
        if call % 2:
            _agree(other, bundle(piece.numpy(), state=own), piece)
    assert int(bundle.state["pieces"]) == 4
    assert int(own["pieces"]) == 2
    np.testing.assert_array_equal(bundle.state["left"], net.left.numpy())


def test_what_is_kept_can_be_set_and_begun_anew(exported: tuple[Any, Path]) -> None:
    bundle, net = collage.load(exported[1]), copy.deepcopy(exported[0])
    bundle(_draw())
    bundle.state.reset()
    net.left.fill_(2.0)
    bundle.state["left"] = net.left
    piece = _draw()
    _agree(net, bundle(piece), piece)
    with pytest.raises(InputError, match=r"'left' must be float32\[1, 3, 2\], not float32\[3\]"):
        bundle.state["left"] = np.zeros(3, np.float32)
    with pytest.raises(InputError, match="keeps no 'right'; it keeps left, pieces"):
        bundle.state["right"] = np.zeros(3, np.float32)


def test_by_name_it_is_an_input_and_an_output(exported: tuple[Any, Path]) -> None:
    bundle, net = collage.load(exported[1]), copy.deepcopy(exported[0])
    assert [given.name for given in bundle.get_inputs()] == ["piece", "left", "pieces"]
    assert [given.name for given in bundle.get_outputs()] == ["y", "count", "left", "pieces"]
    kept = dict(bundle.new_state())
    for _ in range(3):
        piece = _draw()
        y, count, *new = bundle.run(None, {"piece": piece.numpy(), **kept})
        _agree(net, {"y": y, "count": count}, piece)
        kept = dict(zip(kept, new, strict=True))
    with pytest.raises(InputError, match="input 'left' is missing"):
        bundle.run(None, {"piece": piece.numpy()})


def test_what_it_begins_with_is_in_the_bundle(exported: tuple[Any, Path], tmp_path: Path) -> None:
    manifest = json.loads((exported[1] / "manifest.json").read_text())
    left, pieces = manifest["functions"][0]["signature"]["state"]
    assert pieces["fill"] == 0
    held = np.fromfile(exported[1] / left["file"], np.float32)
    np.testing.assert_array_equal(held, exported[0].left.numpy().reshape(-1))
    assert left["file"] in [one["file"] for one in manifest["files"]]
    import shutil

    shutil.copytree(exported[1], tmp_path / "cut.bundle")
    (tmp_path / "cut.bundle" / left["file"]).unlink()
    with pytest.raises(BundleError, match=r"lacks state/0-1.bin"):
        collage.load(tmp_path / "cut.bundle")


def test_the_command_line_runs_it_as_it_begins(exported: tuple[Any, Path], tmp_path: Path) -> None:
    net, piece = copy.deepcopy(exported[0]), _draw()
    np.save(tmp_path / "piece.npy", piece.numpy())
    arguments = ["run", str(exported[1]), "-i", str(tmp_path / "piece.npy"), "-o"]
    done = CliRunner().invoke(app, [*arguments, str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    y, count = (np.load(tmp_path / "out" / f"{name}.npy") for name in ("0-y", "1-count"))
    _agree(net, {"y": y, "count": count}, piece)


def test_programs_in_files_and_of_open_dimensions(tmp_path: Path) -> None:
    net = Stream().eval()
    length = torch.export.Dim("length", min=3, max=9)
    program = torch.export.export(net, (_draw(),), dynamic_shapes=({2: length},))
    torch.export.save(program, tmp_path / "stream.pt2")
    result = collage.optimize(
        tmp_path / "stream.pt2", ["llvm"], shapes={"piece": (1, 3, "4|7")}, cost_model=_costs()
    )
    bundle = collage.load(result.export(tmp_path / "stream.bundle"))
    for extent in (4, 7, 7, 4):
        piece = torch.randn(1, 3, extent)
        _agree(net, bundle(piece), piece)


class Chosen(torch.nn.Module):  # type: ignore[misc,name-defined]
    """What runs depends on what was kept, and one of the ways is a product."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("sum", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        y = torch.cond(self.sum.sum() > 1.0, lambda a: self.linear(a), torch.sin, (x,))
        self.sum.add_(y.abs())
        return y


def test_data_may_choose_by_what_is_kept(tmp_path: Path) -> None:
    torch.manual_seed(4)
    net = Chosen().eval()
    draw = lambda: torch.randn(4)  # noqa: E731
    result = collage.optimize(net, ["llvm"], example_inputs=(draw(),), cost_model=_costs())
    bundle = collage.load(result.export(tmp_path / "chosen.bundle"))
    for _ in range(4):
        x = draw()
        with torch.no_grad():
            expected = net(x).numpy()
        np.testing.assert_allclose(bundle(x.numpy()), expected, rtol=2e-5, atol=2e-5)


def test_samples_may_leave_it_out(tmp_path: Path) -> None:
    """Inputs that are given for measuring are what the module is called with."""
    net = Stream().eval()
    sample = {"piece": _draw().numpy()}
    result = collage.optimize(
        net, ["llvm"], example_inputs=(_draw(),), inputs=sample, log=tmp_path / "log.jsonl"
    )
    assert [info.name for info in result.inputs] == ["piece", "left", "pieces"]


def test_a_state_is_of_one_model(exported: tuple[Any, Path], tmp_path: Path) -> None:
    bundle = collage.load(exported[1])
    result = collage.optimize(
        torch.nn.ReLU(), ["llvm"], example_inputs=(_draw(),), cost_model=_costs()
    )
    plain = collage.load(result.export(tmp_path / "plain.bundle"))
    piece = _draw()
    before = dict(bundle.state)
    for one, other in ((bundle, plain), (plain, bundle)):
        with pytest.raises(InputError, match="a state of another model"):
            one(piece, state=other.new_state())
    for name, held in before.items():
        np.testing.assert_array_equal(bundle.state[name], held)
    np.testing.assert_array_equal(plain(piece, state=plain.new_state()), piece.relu())
