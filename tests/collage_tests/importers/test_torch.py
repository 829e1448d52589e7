"""PyTorch exported programs: imported right, and never a way to run somebody's code."""

from __future__ import annotations

import io
import json
import pickle
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage.backends.contract.errors import ModelError, ShapeError
from collage.backends.devices import CPU
from collage.cost.reference import evaluate, largest_error
from collage.importers import load_model
from collage.normalize import normalize
from collage.pipeline.shapes.bucketed import import_buckets
from collage.pipeline.shapes.buckets import buckets_of
from tests.collage_tests.normalize.oracle import operators

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


class Block(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A convolution with batch norm, then a dense layer with layer norm and GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.dense = torch.nn.Linear(8, 16)
        self.layer_norm = torch.nn.LayerNorm(16)
        with torch.no_grad():
            self.norm.running_mean.normal_()
            self.norm.running_var.uniform_(0.5, 1.5)

    def forward(self, image: Any) -> Any:
        x = torch.nn.functional.relu6(self.norm(self.conv(image)))
        x = self.layer_norm(self.dense(x.mean((2, 3))))
        return torch.nn.functional.gelu(x)


def exported(**kwargs: Any) -> Any:
    torch.manual_seed(0)
    return torch.export.export(Block().eval(), (torch.randn(2, 3, 16, 16),), **kwargs)


def archive(folder: Path) -> Path:
    path = folder / "block.pt2"
    torch.export.save(exported(), path)
    return path


def rewritten(path: Path, change: Callable[[str, bytes], bytes], extra: dict[str, bytes]) -> Path:
    """The archive with some of its files changed, and others added under its root folder."""
    result = path.with_name("changed.pt2")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(result, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
        root = old.namelist()[0].split("/")[0]
        for name, data in extra.items():
            new.writestr(f"{root}/{name}", data)
    return result


class Bomb:
    """Unpickling this creates a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize("from_file", [True, False])
def test_program_agrees_with_torch(tmp_path: Path, from_file: bool) -> None:
    program = exported()
    imported = load_model(archive(tmp_path) if from_file else program)
    assert imported.source_format == "pt2"
    (spec,) = imported.inputs
    assert (spec.name, spec.shape, spec.dtype) == ("image", (2, 3, 16, 16), "float32")
    value = np.random.default_rng(0).standard_normal(spec.shape, np.float32)
    wanted = program.module()(torch.from_numpy(value)).detach().numpy()
    mod = normalize(imported.mod)
    assert largest_error(evaluate(mod, [value])[0], wanted) < 1e-5
    counts = Counter(operators(mod))
    wanted_counts = {"nn.conv2d": 1, "add": 2, "clip": 1, "mean": 1, "matmul": 1}
    assert counts == Counter(wanted_counts) + Counter({"nn.layer_norm": 1, "nn.gelu": 1})


def test_training_mode_is_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    program = torch.export.export(Block().train(), (torch.randn(2, 3, 16, 16),))
    with pytest.raises(ModelError, match=r"training mode; call model\.eval\(\)"):
        load_model(program)


class Folded(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Guards on an open dimension, one that depends on another, and an expression as a size."""

    def forward(self, x: Any, y: Any) -> Any:
        x = x.relu() if x.shape[0] * 3 > 7 else x
        return x.reshape(2, -1) + y[0], x[: x.shape[0] // 2]


def open_archive(folder: Path) -> Path:
    half = torch.export.Dim("half", min=2, max=6)
    program = torch.export.export(
        *(Folded(), (torch.ones(6, 5), torch.ones(7))),
        dynamic_shapes={"x": {0: 2 * half}, "y": {0: 2 * half + 1}},
    )
    path = folder / "open.pt2"
    torch.export.save(program, path)
    return path


def test_open_dimensions_of_a_file(tmp_path: Path) -> None:
    path = open_archive(tmp_path)
    (main,) = import_buckets(path, CPU, buckets_of({"x": ["4|8|10", 5]}))
    for variant, rows in zip(main.variants, (4, 8, 10), strict=True):
        x, y = torch.randn(rows, 5), torch.randn(rows + 1)
        assert [info.shape for info in variant.inputs] == [x.shape, y.shape]
        found = evaluate(variant.mod, [x.numpy(), y.numpy()])
        for mine, theirs in zip(found, Folded()(x, y), strict=True):
            np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5)
    for shapes in ({}, {"x": (5, 5)}, {"x": (14, 5)}, {"x": (8, 5), "y": (8,)}):
        with pytest.raises(ShapeError):
            load_model(path, shapes=shapes)


class Measured(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Guards with Python's own functions of numbers, and numbers with signs in sizes."""

    def forward(self, x: Any, y: Any) -> Any:
        rows, others = x.shape[0], y.shape[0]
        torch._check(abs(rows - others) < 30)
        torch._check(round(rows * 0.5) < 30)
        both = torch.cat([x, y])[: max(rows, others)] * rows**-0.5
        return both + (rows * 1e-5 - others * 2.5), x[-min(4, rows) :]


def test_a_file_with_ordinary_functions_of_sizes(tmp_path: Path) -> None:
    module, rows = Measured(), {0: torch.export.Dim.AUTO}
    example = torch.ones(6, 5), torch.ones(4, 5)
    program = torch.export.export(module, example, dynamic_shapes=(rows, rows))
    path = tmp_path / "measured.pt2"
    torch.export.save(program, path)
    x, y = torch.rand(8, 5), torch.rand(3, 5)
    found = load_model(path, shapes={"x": (8, 5), "y": (3, 5)})
    for mine, theirs in zip(evaluate(found.mod, [x.numpy(), y.numpy()]), module(x, y), strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5)


@pytest.mark.parametrize("place", ["guards_code", "expr_str", "guards_code of a static program"])
@pytest.mark.parametrize(
    "code",
    [
        "__import__('pathlib').Path({mark!r}).touch() or True",
        "open({mark!r}, 'w')",
        "[c for c in ().__class__.__base__.__subclasses__()]",
        "L['x'].size.__func__.__globals__['os'].system('touch {mark}')",
        "Symbol('open({mark!r})')",
        "Add(Symbol('s0'), (lambda: open({mark!r}, 'w'))())",
        "torch.load({mark!r})",
        "1 == 1 or exec('1')",
        "1 #",
    ],
)
def test_expressions_that_do_more_than_count_are_not_evaluated(
    tmp_path: Path, place: str, code: str
) -> None:
    mark = tmp_path / "exploded"
    text = code.format(mark=str(mark))
    is_static = "static" in place

    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return data
        program = json.loads(data)
        if "guards_code" in place:
            assert "guards_code" in program
            program["guards_code"] = [text]
        else:
            first = re.findall(rb'"expr_str": ("(?:[^"\\\\]|\\\\.)*")', data)[0]
            return data.replace(first, json.dumps(text).encode())
        return json.dumps(program).encode()

    whole = archive(tmp_path) if is_static else open_archive(tmp_path)
    with pytest.raises(ModelError, match="would make code of"):
        load_model(rewritten(whole, change, {}), shapes={} if is_static else {"x": (8, 5)})
    assert not mark.exists()


NAMED = "{name}=__import__('pathlib').Path({mark!r}).touch()"
QUOTED = "{name}', __import__('pathlib').Path({mark!r}).touch(), '"


@pytest.mark.parametrize(
    ("old", "name", "new"),
    [
        ('"{name}"', "image", NAMED),
        ('"{name}"', "stride", NAMED),
        ('"{name}"', "p_conv_weight", NAMED),
        ('"{name}"', "conv.weight", QUOTED),
        ('"{name}"', "conv", QUOTED),
        ('"forward_arg_names": ["{name}"]', "image", NAMED),
    ],
)
def test_names_that_are_code_are_not_made_code(
    tmp_path: Path, old: str, name: str, new: str
) -> None:
    mark = tmp_path / "exploded"
    code = new.format(name=name, mark=str(mark))

    def change(file: str, data: bytes) -> bytes:
        if not file.endswith(".json"):
            return data
        before, text = old.format(name=name), data.decode()
        assert before in text or not file.endswith("models/model.json")
        after = old.replace('"{name}"', json.dumps(code)).replace("{name}", code)
        return text.replace(before, after).encode()

    with pytest.raises(ModelError, match="would make code of"):
        load_model(rewritten(archive(tmp_path), change, {}))
    assert not mark.exists()


def test_keywords_of_a_file_are_names(tmp_path: Path) -> None:
    class Keywords(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any, *, batch: Any, last: Any) -> Any:
            return x - batch["a b"] * last

    x, y, z = torch.rand(3, 4)
    path = tmp_path / "keywords.pt2"
    torch.export.save(torch.export.export(Keywords(), (x,), {"batch": {"a b": y}, "last": z}), path)
    found = load_model(path)
    assert [info.name for info in found.inputs] == ["x", "batch_a_b", "last"]
    (mine,) = evaluate(found.mod, [x.numpy(), y.numpy(), z.numpy()])
    np.testing.assert_allclose(mine, (x - y * z).numpy(), rtol=1e-5, atol=1e-6)

    def change(file: str, data: bytes) -> bytes:
        return data.replace(rb"\\\"last\\\"", rb"\\\"last': print(), 'x\\\"")

    with pytest.raises(ModelError, match="would make code of"):
        load_model(rewritten(path, change, {}))


def test_pickled_weights_are_not_read(tmp_path: Path) -> None:
    mark = tmp_path / "exploded"

    def change(name: str, data: bytes) -> bytes:
        if name.endswith("weights_config.json"):
            config = json.loads(data)
            next(iter(config["config"].values()))["use_pickle"] = True
            return json.dumps(config).encode()
        return pickle.dumps(Bomb(mark)) if "data/weights/weight_" in name else data

    with pytest.raises(ModelError, match="pickled tensors"):
        load_model(rewritten(archive(tmp_path), change, {}))
    assert not mark.exists()


def test_pickled_sample_inputs_are_not_read(tmp_path: Path) -> None:
    mark = tmp_path / "exploded"
    buffer = io.BytesIO()
    torch.save(Bomb(mark), buffer)

    def change(name: str, data: bytes) -> bytes:
        return buffer.getvalue() if "/data/sample_inputs/" in name else data

    with pytest.raises(ModelError, match="not plain tensors"):
        load_model(rewritten(archive(tmp_path), change, {}))
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    [
        "data/constants/opaque_obj_0",
        "data/constants/custom_obj_0",
        "data/weights/model.pt",
        "data/aotinductor/model/kernel.so",
    ],
)
def test_objects_and_compiled_code_are_not_read(tmp_path: Path, name: str) -> None:
    path = rewritten(archive(tmp_path), lambda _, data: data, {name: b"anything"})
    with pytest.raises(ModelError, match=r"pickled objects|compiled code"):
        load_model(path)


def test_without_torch_the_line_that_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(ModelError, match=r"pip install 'collage-tvm\[torch\]'"):
        load_model(path)


class Layer(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Attention between linear layers, with a mask that may be none, boolean or causal."""

    def __init__(self, mask: str) -> None:
        super().__init__()
        self.mask = mask
        self.mixed = torch.nn.Linear(24, 72)
        self.joined = torch.nn.Linear(24, 24)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.mixed(x).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        positions = torch.arange(length)
        masks = {
            "none": None,
            "all": positions[None, :] >= positions[0],
            "triangle": positions[None, :] <= positions[:, None],
            "causal": None,
            "some": (positions[None, :] != 2) | (positions[:, None] == 2),
        }
        result = torch.nn.functional.scaled_dot_product_attention(
            *parts, attn_mask=masks[self.mask], is_causal=self.mask == "causal"
        )
        return self.joined(result.transpose(1, 2).reshape(batch, length, width))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("mask", "wanted", "causal"),
    [
        ("none", "nn.attention", None),
        ("all", "nn.attention", None),
        ("causal", "nn.attention", "TopLeft"),
        ("triangle", "nn.attention", "TopLeft"),
        ("some", "nn.attention_bias", None),
    ],
)
def test_attention_stays_one_operator(
    mask: str, wanted: str, causal: str | None, dtype: str
) -> None:
    torch.manual_seed(1)
    layer = Layer(mask).eval().to(getattr(torch, dtype))
    x = torch.randn(2, 6, 24).to(getattr(torch, dtype))
    mod = normalize(load_model(torch.export.export(layer, (x,))).mod)
    found = Counter(operators(mod))
    assert found[wanted] == 1
    assert found["matmul"] == 2
    assert found["nn.softmax"] == 0
    bindings = mod["main"].body.blocks[0].bindings
    (attention,) = (b.value for b in bindings if "attention" in str(getattr(b.value, "op", "")))
    assert attention.attrs.causal_mask == causal
    (actual,) = evaluate(mod, [x.numpy()])
    with torch.no_grad():
        expected = layer.float()(x.float()).numpy()
    assert actual.dtype == np.dtype(dtype)
    limit = 1e-5 if dtype == "float32" else 4e-3
    assert largest_error(actual.astype(np.float32), expected) < limit


def test_half_precision_stays_half() -> None:
    block = Block().eval().half()
    image = torch.randn(2, 3, 16, 16).half()
    mod = load_model(torch.export.export(block, (image,))).mod
    for function in (mod, normalize(mod)):
        bindings = function["main"].body.blocks[0].bindings
        types = {str(b.var.ty.dtype) for b in bindings if hasattr(b.var.ty, "dtype")}
        assert types == {"float16"}
    (actual,) = evaluate(normalize(mod), [image.numpy()])
    with torch.no_grad():
        expected = block.float()(image.float()).numpy()
    assert largest_error(actual.astype(np.float32), expected) < 1e-2


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_of_every_rank_and_their_transposes(rank: int, dtype: str) -> None:
    """TVM's translator has no transposed convolution of volumes."""
    torch.manual_seed(2)
    nn = torch.nn
    straight = getattr(nn, f"Conv{rank}d")
    transposed = getattr(nn, f"ConvTranspose{rank}d")
    layers = nn.Sequential(
        straight(8, 12, 3, padding="same", dilation=2, groups=4),
        nn.ReLU(),
        straight(12, 8, 3, stride=2, bias=False),
        nn.Tanh(),
        transposed(8, 12, 4, stride=2, padding=1, groups=2, bias=False),
        getattr(nn, f"BatchNorm{rank}d")(12),
        nn.ReLU(),
        transposed(12, 6, 3, stride=2, padding=1, output_padding=1, dilation=2),
    ).eval()
    with torch.no_grad():
        layers[5].running_mean.normal_()
        layers[5].running_var.uniform_(0.5, 1.5)
    x = torch.randn(2, 8, *(11, 9, 7)[:rank])
    wanted = getattr(torch, dtype)
    mod = load_model(torch.export.export(layers.to(wanted), (x.to(wanted),))).mod
    found = Counter(operators(normalize(mod)))
    assert found[f"nn.conv{rank}d"] == found[f"nn.conv{rank}d_transpose"] == 2
    assert found["multiply"] == 0
    (actual,) = evaluate(normalize(mod), [x.to(wanted).numpy()])
    with torch.no_grad():
        expected = layers.float()(x).numpy()
    assert actual.dtype == np.dtype(dtype)
    limit = 1e-5 if dtype == "float32" else 6e-3
    assert largest_error(actual.astype(np.float32), expected) < limit
