"""PyTorch modules in memory: exported, optimized, and called as the module itself is."""

from __future__ import annotations

import json
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collage
from collage.backends.contract.errors import BundleError, InputError, ModelError
from collage.cost.models.roofline import DeviceSpec, RooflineCostModel

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)

Pair = namedtuple("Pair", "left right")
PAIR = Pair(1, 2)


class Odd(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Takes and gives tensors in every way at once."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.drop = torch.nn.Dropout(0.5)
        self.norm = torch.nn.BatchNorm1d(4)
        self.register_buffer("shift", torch.arange(4.0))

    def forward(
        self, x: Any, batch: Any, unused: Any, mask: Any = None, *, scale: int = 1, hint: Any = None
    ) -> Any:
        y = self.norm(self.drop(self.second(self.first(x)))) + self.shift
        ids, low = batch["ids"], batch["nested"][0]
        return {
            "scores": (y * scale + low, None),
            "pair": Pair(x, ids + 1),
            "list": [ids > 0, 3, {"total": y.sum(), "weight": self.shift}],
            "again": y,
        }


def odd_inputs(seed: int | None = None) -> dict[str, Any]:
    random = torch.Generator()
    random.seed() if seed is None else random.manual_seed(seed)
    return {
        "x": torch.randn(2, 4, generator=random),
        "batch": {
            "ids": torch.randint(-5, 5, (3,), generator=random),
            "nested": (torch.randn((), generator=random), None),
        },
        "unused": torch.randn(5, generator=random),
        "scale": 2,
    }


def assert_same(got: Any, want: Any) -> None:
    """The same structure, and as good as the same numbers."""
    if isinstance(want, torch.Tensor):
        array, wanted = np.asarray(got), want.detach().numpy()
        assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-4)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for key in want:
            assert_same(got[key], want[key])
    elif isinstance(want, tuple | list):
        assert isinstance(got, tuple) == isinstance(want, tuple) and len(got) == len(want)
        assert getattr(got, "_fields", None) == getattr(want, "_fields", None)
        for one, other in zip(got, want, strict=True):
            assert_same(one, other)
    else:
        assert got == want and type(got) is type(want)


@pytest.fixture(scope="module")
def odd() -> Any:
    torch.manual_seed(0)
    model = Odd().train()
    model.norm.eval()
    return model


@pytest.fixture(scope="module")
def bundle(odd: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    processor = DeviceSpec("a processor", 1e12, 1e12, 1e12, bytes_per_sec=50e9)
    estimated = RooflineCostModel(processor)
    result = collage.optimize(odd, ["llvm"], example_inputs=odd_inputs(0), cost_model=estimated)
    # The parts are in the modes that they were in.
    assert odd.training and odd.drop.training and not odd.norm.training
    assert result.model == "Odd"
    return result.export(tmp_path_factory.mktemp("odd") / "bundle")


def eager(odd: Any, inputs: dict[str, Any]) -> Any:
    modes = {part: part.training for part in odd.modules()}
    with torch.no_grad():
        result = odd.eval()(**inputs)
    for part, training in modes.items():
        part.training = training
    return result


def test_inputs_and_outputs_keep_names_and_structure(odd: Any, bundle: Path) -> None:
    loaded = collage.load(bundle)
    assert [info.name for info in loaded.inputs] == ["x", "batch_ids", "batch_nested_0", "unused"]
    names = "scores.0 pair.left pair.right list.0 list.2.total list.2.weight again"
    assert [info.name for info in loaded.outputs] == names.split()
    inputs = odd_inputs()
    want = eager(odd, inputs)
    got = loaded(**inputs)
    assert_same(got, want)
    assert isinstance(got["again"], torch.Tensor)
    x, batch, unused = (inputs[name] for name in ("x", "batch", "unused"))
    assert_same(loaded(x, batch, unused, None, scale=2), want)


def test_arrays_of_numpy_give_arrays_of_numpy(odd: Any, bundle: Path) -> None:
    inputs = odd_inputs()
    batch = inputs["batch"]
    arrays = {
        "x": inputs["x"].numpy(),
        "batch": {"ids": batch["ids"].numpy(), "nested": [batch["nested"][0].numpy(), None]},
        "unused": inputs["unused"].numpy(),
        "scale": 2,
    }
    got = collage.load(bundle)(**arrays)
    assert isinstance(got["scores"][0], np.ndarray)
    assert_same(got, eager(odd, inputs))
    session = collage.load(bundle)
    feed = {
        "x": arrays["x"],
        "batch_ids": batch["ids"].numpy(),
        "batch_nested_0": np.float32(batch["nested"][0].item()),
        "unused": arrays["unused"],
    }
    (total, scores) = session.run(["list.2.total", "scores.0"], feed)
    assert_same(total, eager(odd, inputs)["list"][2]["total"])
    assert_same(scores, eager(odd, inputs)["scores"][0])


def test_results_may_be_written_to(odd: Any, bundle: Path) -> None:
    loaded, inputs = collage.load(bundle), odd_inputs()
    want = eager(odd, inputs)
    got = loaded(**inputs)
    for tensor in (got["list"][2]["weight"], got["pair"].left, got["again"], got["scores"][0]):
        tensor.fill_(7)
    assert_same(loaded(**inputs), want)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, r"input 'x' must be an array, float32\[2, 4\], not a NoneType"),
        ({"x": torch.zeros(2, 5)}, r"'x' must be float32\[2, 4\], not float32\[2, 5\]"),
        ({"x": torch.zeros(2, 4).double()}, r"'x' must be float32\[2, 4\], not float64\[2, 4\]"),
        ({"scale": 3}, "input 'scale' is 2 ever since the model was exported, not 3"),
        ({"batch": {"ids": torch.zeros(3)}}, "input 'batch.nested' is missing"),
        ({"batch": torch.zeros(3)}, "input 'batch' must be a dict with ids, nested, not a Tensor"),
        ({"mask": torch.zeros(3)}, "input 'mask' is None ever since .* exported, not a Tensor"),
        (
            {"masks": 1},
            r"unknown input 'masks'; the model takes x, batch, unused, mask, \*, scale, h",
        ),
    ],
)
def test_a_wrong_call_says_what_is_wrong(
    bundle: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        collage.load(bundle)(**{**odd_inputs(0), **changes})


class Takes(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Parameters of every kind, with defaults and without."""

    def forward(
        self,
        x: Any,
        mask: Any = None,
        bias: Any = None,
        odd: Any = PAIR,
        *,
        twice: Any = False,
    ) -> Any:
        x = x if mask is None else x * mask
        x = x if bias is None else x - bias
        return (x + odd.left) * 2 if twice else x + odd.left


class Difference(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, a: Any, b: Any) -> Any:
        return a - b


class Several(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, first: Any, *rest: Any, last: Any = None, **more: Any) -> Any:
        return first - 2 * rest[0] - 3 * rest[1] - 5 * last - 7 * more["u"]


def test_a_call_means_what_it_means_to_the_module(tmp_path: Path) -> None:
    """Each way of calling is either the module's own, or refused: never something else."""
    x, y = torch.rand(3) + 1, torch.rand(3) + 1
    estimated = RooflineCostModel(DeviceSpec("a processor", 1e12, 1e12, 1e12, bytes_per_sec=50e9))
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((x,), {}), ((x, y), {}), ((x, None, y), {}), ((x, y, y), {}), ((x, y, None), {}),
        ((x,), {"bias": y}), ((x,), {"mask": y}), ((x,), {"mask": None, "bias": y}),
        ((x,), {"bias": y, "twice": True}), ((x, y), {"twice": False}), ((x,), {"twice": True}),
        ((y, x), {}), ((), {"b": y, "a": x}), ((), {"a": y, "b": x}), ((x, None, None, y), {}),
        ((x, y, x), {"last": y, "u": x}), ((x, y, x, y, x), {}), ((x, y, x), {"u": y, "last": x}),
    ]  # fmt: skip
    by_name = torch.export.export(Difference(), (), {"b": y, "a": x})
    several = torch.export.export(Several(), (x, y, x), {"last": y, "u": x})
    models: list[tuple[Any, Any, int]] = [
        (Takes(), {"x": x, "bias": y}, 3),
        (Takes(), (x, y), 5),
        (Takes(), {"x": x, "twice": True}, 1),
        (Takes(), {"x": x, "mask": None, "twice": False}, 1),
        (Difference(), {"b": y, "a": x}, 4),
        (by_name, None, 2),
        (several, None, 2),
    ]
    for number, (module, examples, taken) in enumerate(models):
        result = collage.optimize(module, ["llvm"], example_inputs=examples, cost_model=estimated)
        bundle = collage.load(result.export(tmp_path / str(number)))
        own = module.module() if isinstance(module, torch.export.ExportedProgram) else module
        same = 0
        for args, named in calls:
            try:
                found = bundle(*args, **named)
            except InputError:
                continue
            torch.testing.assert_close(found, own(*args, **named), rtol=1e-4, atol=1e-4)
            same += 1
        assert same == taken, (number, same)


def test_older_and_newer_bundles(odd: Any, bundle: Path, tmp_path: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    for path in bundle.iterdir():
        if path.name != "manifest.json":
            (tmp_path / path.name).symlink_to(path)
    (function,) = manifest["functions"]
    signature = {**function["signature"], "version": 99}
    newer = {**manifest, "functions": [{**function, "signature": signature}]}
    (tmp_path / "manifest.json").write_text(json.dumps(newer))
    with pytest.raises(BundleError, match="signature of version 99; this version reads 1"):
        collage.load(tmp_path)
    del manifest["functions"]
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "schema_version": 1}))
    inputs = odd_inputs()
    flat = (inputs["x"], inputs["batch"]["ids"], inputs["batch"]["nested"][0], inputs["unused"])
    got = collage.load(tmp_path)(*flat)
    assert isinstance(got, list)
    assert_same(got[0], eager(odd, inputs)["scores"][0])


class Branches(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Python decides by what is in a tensor."""

    def forward(self, x: Any) -> Any:
        return x + 1 if x.sum() > 0 else x - 1


class GivesNone(torch.nn.Module):  # type: ignore[misc,name-defined]
    """No tensor comes out."""

    def forward(self, x: Any) -> Any:
        return None, 3


@pytest.mark.parametrize(
    ("module", "examples", "error", "message"),
    [
        (torch.nn.ReLU(), None, InputError, r"'ReLU' give example_inputs=\(...\)"),
        (torch.nn.ReLU(), (1, 2, 3), InputError, "'ReLU' cannot be called .* too many positional"),
        (torch.nn.ReLU(), {"y": 1}, InputError, "'ReLU' cannot be called .* missing .*'input'"),
        (torch.nn.Linear(3, 4), torch.zeros(2, 5), ModelError, "torch.export cannot export 'Lin"),
        (
            Branches(),
            torch.zeros(2),
            ModelError,
            "cannot export 'Branches': .*at .*test_torch_modules.py:[0-9]+; .*torch.cond",
        ),
        (GivesNone(), torch.zeros(2), ModelError, "gives no tensor back"),
    ],
)
def test_what_cannot_be_taken_is_refused(
    module: Any, examples: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        collage.optimize(module, ["llvm"], example_inputs=examples)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_torchscript_is_refused_with_what_to_give() -> None:
    """A module of it has no signature, and PyTorch's error about a part says nothing of it."""
    scripted = torch.jit.script(torch.nn.Linear(2, 2))
    for module, which in (
        (scripted, "it is"),
        (torch.nn.Sequential(torch.nn.ReLU(), scripted), "its part '1' is"),
    ):
        with pytest.raises(ModelError, match=f"{which} TorchScript's.*give the torch.nn.Module"):
            collage.optimize(module, ["llvm"], example_inputs=torch.ones(1, 2))


def test_example_inputs_are_for_modules_only() -> None:
    program = torch.export.export(torch.nn.ReLU(), (torch.zeros(2),))
    with pytest.raises(InputError, match=r"are for a torch\.nn\.Module, not for a Exp"):
        collage.optimize(program, ["llvm"], example_inputs=(torch.zeros(2),))
