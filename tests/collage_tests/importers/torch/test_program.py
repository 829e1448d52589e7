"""PyTorch exported programs, in memory and in files: imported right."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage.backends.contract.errors import ModelError, ShapeError
from collage.backends.devices import CPU
from collage.cost.reference import evaluate, largest_error
from collage.importers import load_model
from collage.normalize import normalize
from collage.pipeline.imported import prepare
from collage.pipeline.inputs.samples import samples_of
from collage.pipeline.shapes.bucketed import import_buckets
from collage.pipeline.shapes.buckets import buckets_of
from tests.collage_tests.importers.torch.torch_programs import (
    Block,
    Folded,
    archive,
    exported,
    open_archive,
)
from tests.collage_tests.normalize.oracle import operators

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


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
    with pytest.raises(ModelError, match=r"in training; call model\.eval\(\) before it is exp"):
        load_model(program)


def test_dropout_that_knows_no_mode_is_refused() -> None:
    """It was left out, so that the network gave what PyTorch's never gives."""
    functional = torch.nn.functional

    class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            kept = functional.dropout(x, 0.5, training=self.training)
            mixed = functional.scaled_dot_product_attention(kept, kept, kept, dropout_p=0.1)
            return mixed, functional.dropout(kept)

    program = torch.export.export(Net().eval(), (torch.randn(1, 2, 3, 4),))
    with pytest.raises(ModelError, match="drops elements at random") as caught:
        load_model(program)
    assert [reason.split(":")[0] for reason in caught.value.value] == [
        "native_dropout",
        "scaled_dot_product_attention",
    ]


def test_sparse_tensors_are_refused_with_what_to_give() -> None:
    class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.edges = torch.eye(5).to_sparse()

        def forward(self, x: Any) -> Any:
            return torch.sparse.mm(self.edges, x)

    program = torch.export.export(Net(), (torch.randn(5, 3),))
    with pytest.raises(ModelError, match=r"it holds a sparse tensor; give it dense"):
        load_model(program)


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


class Scaled(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Numbers without a name in half precision, as networks without norms scale activations."""

    def forward(self, x: Any) -> Any:
        for _ in range(8):
            x = torch.nn.functional.relu(x) * 1.7015043497085571 / 1.7
        return x * 0.2


def test_numbers_are_not_rounded_to_half_precision() -> None:
    x = torch.rand(64, 64).half()
    mod = normalize(load_model(torch.export.export(Scaled(), (x,))).mod)
    with torch.no_grad():
        expected, eager = Scaled()(x.double()).numpy(), Scaled()(x).double().numpy()
    (found,) = evaluate(mod, [x.numpy()])
    # One rounding in place of seventeen.
    error = np.abs(found.astype("float64") - expected).mean()
    assert error < 0.5 * np.abs(eager - expected).mean()


def test_what_a_program_was_traced_with_is_known(tmp_path: Path) -> None:
    """Where the data are places of their own, no other inputs are known to select what there is."""

    class Rows(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, rows: Any, given: dict[str, Any]) -> Any:
            return given["table"].gather(0, (rows - 1000).long())

    table, rows = torch.randn(5, 4), torch.full((3, 4), 1002.0)
    program = torch.export.export(Rows(), (rows, {"table": table}))
    path = tmp_path / "rows.pt2"
    torch.export.save(program, path)
    for source in (program, path):
        loaded = load_model(source)
        assert [x.shape for x in loaded.examples if x is not None] == [(3, 4), (5, 4)]
        found = prepare(loaded, CPU)
        (sample,) = samples_of(found.mod, found.inputs, None, 0, ranges=found.ranges).samples
        np.testing.assert_array_equal(sample.inputs[0], rows.numpy())
        want = Rows()(rows, {"table": torch.from_numpy(sample.inputs[1])})
        np.testing.assert_allclose(sample.expected[0], want.numpy(), rtol=1e-6)
