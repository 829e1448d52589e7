"""onnxruntime's own attention, positions and joined normalizations, beside onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper

from collage.backends.contract.errors import ModelError
from collage.importers import load_model
from tests.collage_tests.importers.onnx.onnx_models import (
    Array,
    by_importer,
    by_onnxruntime,
    fresh,
    model_of,
    require_same,
)

_DOMAIN = "com.microsoft"
_BATCH, _ROWS, _HEADS, _DEPTH = 2, 5, 4, 16
_WIDTH = _HEADS * _DEPTH


def compare(
    operator: str,
    given: Mapping[str, Array | None],
    outputs: Sequence[str] = ("y",),
    domain: str = _DOMAIN,
    compared: int | None = None,
    **attributes: Any,
) -> None:
    """Inputs in their order, None for those left out; those in capitals are constants."""
    names = [name if array is not None else "" for name, array in given.items()]
    node = helper.make_node(operator, names, list(outputs), domain=domain, **attributes)
    there = {name: array for name, array in given.items() if array is not None}
    fed = {name: array for name, array in there.items() if name.islower()}
    constants = {name: array for name, array in there.items() if name.isupper()}
    wanted = [name for name in outputs if name]
    model = model_of([node], fed, wanted, constants, beyond=_DOMAIN)
    ours, peer = by_importer(model, fed), by_onnxruntime(model, fed)
    require_same(ours[:compared], peer[:compared])


def lengths(*values: int) -> Array:
    return np.asarray(values, "int32")


def seen(*shape: int) -> Array:
    """Which columns are; each row sees one at least."""
    mask = np.random.default_rng().integers(0, 2, shape, "int32")
    mask[..., 0] = 1
    return mask


_MASKS = {
    "none": None,
    "by column": seen(_BATCH, _ROWS),
    "by row": seen(_BATCH, _ROWS, _ROWS),
    "ends": lengths(3, 5),
    "ends and begins": lengths(4, 5, 1, 0),
}


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", _MASKS)
def test_attention(mask: str, causal: int) -> None:
    given = {"x": fresh(_BATCH, _ROWS, 12), "W": fresh(12, 3 * _WIDTH), "B": fresh(3 * _WIDTH)}
    given["m"] = _MASKS[mask]
    compare("Attention", given, num_heads=_HEADS, unidirectional=causal)


def test_attention_with_a_bias_and_values_of_another_width() -> None:
    given = {"x": fresh(_BATCH, _ROWS, 12), "W": fresh(12, 2 * _WIDTH + 16), "b": None}
    given |= {"m": seen(_BATCH, _ROWS), "p": None, "s": fresh(1, _HEADS, _ROWS, _ROWS)}
    widths = [_WIDTH, _WIDTH, 16]
    compare("Attention", given, num_heads=_HEADS, qkv_hidden_sizes=widths, scale=0.3)


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_behind_earlier_rows(causal: int) -> None:
    given = {"x": fresh(_BATCH, _ROWS, 12), "W": fresh(12, 3 * _WIDTH), "B": fresh(3 * _WIDTH)}
    given |= {"m": seen(_BATCH, _ROWS + 3), "p": fresh(2, _BATCH, _HEADS, 3, _DEPTH)}
    compare("Attention", given, ["y", "present"], num_heads=_HEADS, unidirectional=causal)


def test_attention_with_a_mask_of_another_shape() -> None:
    given = {"x": fresh(1, 4, 8), "w": fresh(8, 24), "m": np.ones((1, 1, 9, 9), "int32")}
    node = helper.make_node("Attention", ["x", "w", "", "m"], ["y"], domain=_DOMAIN, num_heads=2)
    with pytest.raises(ModelError, match=r"a mask of shape \(1, 1, 9, 9\) for 4 columns"):
        load_model(model_of([node], given, ["y"], beyond=_DOMAIN))


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("columns", [5, 7])
@pytest.mark.parametrize("bias", [True, False])
def test_heads_of_three_projections(bias: bool, columns: int, causal: int) -> None:
    given = {"q": fresh(_BATCH, _ROWS, _WIDTH), "k": fresh(_BATCH, columns, _WIDTH)}
    given |= {"v": fresh(_BATCH, columns, 16), "B": fresh(2 * _WIDTH + 16) if bias else None}
    given |= {"m": seen(_BATCH, columns), "s": fresh(1, _HEADS, _ROWS, columns)}
    causal = causal if columns == _ROWS else 0
    compare("MultiHeadAttention", given, num_heads=_HEADS, unidirectional=causal)


def test_heads_behind_earlier_rows() -> None:
    given = {name: fresh(_BATCH, _ROWS, _WIDTH) for name in "qkv"}
    given |= {"B": None, "m": None, "s": None}
    given |= {name: fresh(_BATCH, _HEADS, 3, _DEPTH) for name in ("pk", "pv")}
    compare("MultiHeadAttention", given, ["y", "k2", "v2"], num_heads=_HEADS)


def test_heads_of_an_encoder() -> None:
    given = {"q": fresh(_BATCH, _ROWS, _WIDTH)}
    given |= {name: fresh(_BATCH, _HEADS, 7, _DEPTH) for name in "kv"}
    compare("MultiHeadAttention", given, num_heads=_HEADS)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rotated", [_DEPTH, 4])
@pytest.mark.parametrize("form", ["rows", "heads"])
def test_rotary_embedding(form: str, rotated: int, interleaved: int) -> None:
    shape = (_BATCH, _HEADS, _ROWS, _DEPTH) if form == "heads" else (_BATCH, _ROWS, _WIDTH)
    given = {"x": fresh(*shape), "C": fresh(20, rotated // 2), "S": fresh(20, rotated // 2)}
    part = {"rotary_embedding_dim": rotated, "num_heads": _HEADS} if rotated < _DEPTH else {}
    for places in (np.asarray([3]), np.random.default_rng().integers(0, 20, (_BATCH, _ROWS))):
        ordered = {"x": given["x"], "p": places, "C": given["C"], "S": given["S"]}
        compare("RotaryEmbedding", ordered, interleaved=interleaved, **part)


def grouped(past: int, rows: int, sizes: Array, *, total: int, batch: int = 2) -> dict[str, Any]:
    """Four heads of queries, two of keys."""
    given: dict[str, Any] = {"q": fresh(batch, rows, _WIDTH)}
    given |= {name: fresh(batch, rows, 2 * _DEPTH) for name in "kv"}
    for name in ("pk", "pv"):
        given[name] = fresh(batch, 2, past, _DEPTH) if past else None
    return given | {"n": sizes - 1, "T": np.asarray(total, "int32")}


_GROUPED = {"num_heads": _HEADS, "kv_num_heads": 2}
_ALL = ("y", "k2", "v2")


@pytest.mark.parametrize("attributes", [{}, {"local_window_size": 2}, {"softcap": 0.5}])
def test_grouped_heads_of_a_prompt(attributes: dict[str, Any]) -> None:
    compare("GroupQueryAttention", grouped(0, 5, lengths(5, 5), total=5), **_GROUPED, **attributes)


@pytest.mark.parametrize("attributes", [{}, {"local_window_size": 3}, {"softcap": 0.5}])
def test_grouped_heads_behind_a_cache(attributes: dict[str, Any]) -> None:
    """Sequences of one length and of several, whose caches hold anything behind their ends."""
    once = grouped(6, 1, lengths(7), total=7, batch=1)
    compare("GroupQueryAttention", once, _ALL, **_GROUPED, **attributes)
    for ends in (lengths(7, 4), lengths(5, 4)):
        several = grouped(6, 1, ends, total=int(ends.max()))
        compare("GroupQueryAttention", several, _ALL, compared=1, **_GROUPED, **attributes)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("past", [0, 4])
def test_grouped_heads_with_rotary_positions(past: int, interleaved: int) -> None:
    rows = 1 if past else 5
    given = grouped(past, rows, lengths(past + rows), total=past + rows, batch=1)
    given |= {"C": fresh(20, _DEPTH // 2), "S": fresh(20, _DEPTH // 2)}
    attributes = {"do_rotary": 1, "rotary_interleaved": interleaved}
    compare("GroupQueryAttention", given, _ALL, **_GROUPED, **attributes)


def test_grouped_heads_with_a_sink() -> None:
    given = grouped(0, 5, lengths(5, 5), total=5)
    given |= dict.fromkeys(("c", "s", "p", "b")) | {"SINK": fresh(_HEADS)}
    compare("GroupQueryAttention", given, **_GROUPED)


def test_grouped_heads_joined_in_one_tensor() -> None:
    given = grouped(0, 5, lengths(5, 5), total=5)
    given |= {"q": fresh(2, 5, 2 * _WIDTH), "k": None, "v": None}
    compare("GroupQueryAttention", given, **_GROUPED)


@pytest.mark.parametrize("outputs", [["y"], ["y", "", "", "sum"]])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", [(2, 5), (1, 5)])
def test_sums_that_are_normalized(lead: tuple[int, ...], bias: bool, outputs: list[str]) -> None:
    given = {"x": fresh(2, 5, 12), "s": fresh(*lead, 12), "G": fresh(12)}
    more = {"C": fresh(12)} if bias else {}
    compare("SkipSimplifiedLayerNormalization", given | more, outputs, epsilon=1e-5)
    compare("SkipLayerNormalization", given | {"B": fresh(12)} | more, outputs, epsilon=1e-5)
    compare("SkipLayerNormalization", given | {"B": None} | more, outputs)


@pytest.mark.parametrize("axis", [-1, 1])
def test_root_mean_square(axis: int) -> None:
    given = {"x": fresh(2, 5, 12), "G": fresh(*(2, 5, 12)[axis:])}
    compare("SimplifiedLayerNormalization", given, ["y"], "", axis=axis, epsilon=1e-4)


@pytest.mark.parametrize("places", [True, False])
@pytest.mark.parametrize("segments", [True, False])
def test_embeddings(segments: bool, places: bool) -> None:
    rng = np.random.default_rng()
    given: dict[str, Any] = {"i": rng.integers(0, 30, (2, 5), "int32")}
    given["s"] = rng.integers(0, 2, (2, 5), "int32") if segments else None
    given |= {"W": fresh(30, 12), "P": fresh(9, 12), "S": fresh(2, 12) if segments else None}
    given |= {"G": fresh(12), "B": fresh(12), "m": seen(2, 5)}
    given["p"] = rng.integers(0, 9, (2, 5), "int32") if places else None
    compare("EmbedLayerNormalization", given, ["y", "n", "e"])
