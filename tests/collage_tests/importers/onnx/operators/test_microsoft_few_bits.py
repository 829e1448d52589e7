"""onnxruntime's operators with weights of few bits: products, tables, mixtures of experts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper

from collage.backends.contract.errors import ModelError
from tests.collage_tests.importers.onnx.onnx_models import (
    by_importer,
    by_onnxruntime,
    fresh,
    model_of,
    require_same,
)

_DOMAIN = "com.microsoft"
_WEIGHT_BITS = "expert_weight_bits"


def _model(operator: str, inputs: list[str], given: Any, constants: Any, **attributes: Any) -> Any:
    node = helper.make_node(operator, inputs, ["y"], domain=_DOMAIN, **attributes)
    return model_of([node], given, ["y"], constants, beyond=_DOMAIN)


def _packed(*shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng().integers(0, 256, shape, dtype=np.uint8)


def _unpacked(packed: Any, bits: int) -> Any:
    """Numbers of few bits along the last axis; onnxruntime may round what they multiply."""
    single = np.unpackbits(packed, -1, bitorder="little").reshape(*packed.shape[:-1], -1, bits)
    return (single << np.arange(bits)).sum(-1).astype("float32")


def _scales(*shape: int) -> Any:
    return np.abs(fresh(*shape)) * 0.1 + 0.01


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("points", [False, True])
def test_products_of_few_bits(bits: int, points: bool) -> None:
    """A last block that is not whole, and zero points that fill no byte."""
    rows, columns, block = 5, 88, 32
    blocks = -(-columns // block)
    constants = {"w": _packed(rows, blocks, block * bits // 8), "s": _scales(rows * blocks)}
    constants |= {"z": _packed(rows * -(-blocks * bits // 8))} if points else {}
    given = {"x": fresh(2, 3, columns)}
    sizes = {"K": columns, "N": rows, "bits": bits, "block_size": block}
    model = _model("MatMulNBits", ["x", *constants], given, constants, **sizes)
    zeros = np.full((rows, blocks), 1 << (bits - 1))
    zeros = _unpacked(constants["z"].reshape(rows, -1), bits)[:, :blocks] if points else zeros
    values = _unpacked(constants["w"], bits) - zeros[..., None]
    real = (values * constants["s"].reshape(rows, blocks, 1)).reshape(rows, -1)[:, :columns]
    require_same(by_importer(model, given), [given["x"] @ real.T.astype("float32")])


def test_groups_that_a_table_names() -> None:
    """As GPTQ with ``act_order`` leaves them. onnxruntime takes all zero points for 8 there."""
    rows, columns, block = 5, 64, 16
    groups = np.random.default_rng().permutation(columns).astype("int32") // block
    constants = {
        "w": _packed(rows, columns // block, block // 2),
        "s": _scales(rows * columns // block),
        "z": _packed(rows, columns // block // 2),
        "g": groups,
    }
    given = {"x": fresh(3, columns)}
    values, points = (_unpacked(constants[name], 4).reshape(rows, -1) for name in "wz")
    scales = constants["s"].reshape(rows, -1)
    sizes = {"K": columns, "N": rows, "bits": 4, "block_size": block}
    model = _model("MatMulNBits", ["x", *constants], given, constants, **sizes)
    real = (values - points[:, groups]) * scales[:, groups]
    require_same(by_importer(model, given), [given["x"] @ real.T])
    inputs = ["x", "w", "s", "", "g"]
    model = _model("MatMulNBits", inputs, given, constants, **sizes)
    require_same(by_importer(model, given), by_onnxruntime(model, given))


@pytest.mark.parametrize("kind", [0, 1])
def test_products_of_bitsandbytes(kind: int) -> None:
    rows, columns, block = 6, 64, 32
    count = rows * columns
    constants = {"w": _packed(count // 2), "s": _scales(count // block)}
    given = {"x": fresh(3, columns)}
    sizes = {"K": columns, "N": rows, "block_size": block, "quant_type": kind}
    model = _model("MatMulBnb4", ["x", *constants], given, constants, **sizes)
    require_same(by_importer(model, given), by_onnxruntime(model, given))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("points", [False, True])
def test_rows_of_a_table_of_few_bits(bits: int, points: bool) -> None:
    """Embeddings, as onnxruntime's builder of language models writes them; places from the end."""
    rows, width, block = 7, 96, 32
    blocks = width // block
    table, zeros = _packed(rows, width * bits // 8), _packed(rows, -(-blocks * bits // 8))
    constants = {"t": table, "s": _scales(rows, blocks)} | ({"z": zeros} if points else {})
    given = {"i": np.array([[0, -1, 3], [6, -7, 2]])}
    inputs = ["t", "i", "s", *(["z"] if points else [])]
    ways = {"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
    model = _model("GatherBlockQuantized", inputs, given, constants, **ways)
    require_same(by_importer(model, given), by_onnxruntime(model, given))


def test_blocks_along_the_rows_of_a_table_are_refused() -> None:
    constants = {"t": _packed(32, 4), "s": _scales(2, 4)}
    given = {"i": np.array([1, 2])}
    ways = {"bits": 8, "block_size": 16, "gather_axis": 0, "quantize_axis": 0}
    model = _model("GatherBlockQuantized", ["t", "i", "s"], given, constants, **ways)
    with pytest.raises(ModelError, match="blocks along another axis than the last"):
        by_importer(model, given)


@pytest.mark.parametrize(("bits", "block"), [(4, 0), (4, 16), (8, 16)])
def test_a_mixture_of_experts_of_few_bits(bits: int, block: int) -> None:
    experts, width, inner = 4, 32, 16

    def layer(which: int, rows: int, columns: int) -> dict[str, Any]:
        scales = (experts, rows, columns // block) if block else (experts, rows)
        return {
            f"w{which}": _packed(experts, rows, columns * bits // 8),
            f"s{which}": _scales(*scales) * (0.1 if bits == 4 else 0.01),
            f"b{which}": fresh(experts, rows),
        }

    constants = layer(1, 2 * inner, width) | layer(2, width, inner)
    given = {"x": fresh(6, width), "logits": fresh(6, experts)}
    ways: dict[str, Any] = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1}
    ways |= {"normalize_routing_weights": 1, _WEIGHT_BITS: bits}
    ways |= {"block_size": block} if block else {}
    model = _model("QMoE", ["x", "logits", *constants], given, constants, **ways)
    real: dict[str, Any] = {}
    for which in (1, 2):
        values = _unpacked(constants[f"w{which}"], bits) - (1 << (bits - 1))
        scales = constants[f"s{which}"]
        scales = np.repeat(scales, block, -1) if block else scales[..., None]
        real |= {f"w{which}": (values * scales).astype("float32")}
        real |= {f"b{which}": constants[f"b{which}"]}
    plain = {name: way for name, way in ways.items() if name not in ("block_size", _WEIGHT_BITS)}
    other = _model("MoE", ["x", "logits", *real], given, real, **plain)
    require_same(by_importer(model, given), by_onnxruntime(other, given))
