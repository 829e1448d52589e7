"""Operators with converters of their own, beside the standard's reference or onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from collage.importers import load_model
from collage.normalize import normalize
from tests.collage_tests.importers.onnx.onnx_models import (
    by_importer,
    by_onnxruntime,
    by_reference,
    fresh,
    model_of,
    require_same,
)
from tests.collage_tests.normalize.oracle import run


@pytest.mark.parametrize("length", [None, 5, 8, 12])
@pytest.mark.parametrize(("inverse", "onesided"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_fourier_transforms(length: int | None, inverse: int, onesided: int) -> None:
    real = onesided and not inverse
    x = fresh(2, 8, 3, 1 if real else 2)
    numbers = x[..., 0].astype("complex128") + (0 if real else 1j * x[..., 1])
    names, constants = ["x"], {"axis": np.array(1)}
    if length is not None:
        constants["length"] = np.array(length)
    names += ["length" if length is not None else "", "axis"]
    node = helper.make_node("DFT", names, ["y"], inverse=inverse, onesided=onesided)
    model = model_of([node], {"x": x}, ["y"], constants, opset=20)
    if inverse and onesided:
        values = np.fft.irfft(numbers, length, axis=1)
        wanted = values[..., None]
    else:
        transform = {(0, 0): np.fft.fft, (1, 0): np.fft.ifft, (0, 1): np.fft.rfft}
        values = transform[inverse, onesided](numbers if not real else numbers.real, length, axis=1)
        wanted = np.stack([values.real, values.imag], -1)
    require_same(by_importer(model, {"x": x}), [wanted.astype("float32")])


@pytest.mark.parametrize("parts", [1, 2])
def test_short_time_fourier_transform(parts: int) -> None:
    x = fresh(2, 32, parts)
    node = helper.make_node(
        "STFT", ["x", "step", "window", "length"], ["y"], onesided=int(parts == 1)
    )
    constants = {
        "step": np.array(5),
        "window": np.hanning(8).astype("float32"),
        "length": np.array(8),
    }
    model = model_of([node], {"x": x}, ["y"], constants)
    (found,) = by_importer(model, {"x": x})
    numbers = x[..., 0] if parts == 1 else x[..., 0] + 1j * x[..., 1]
    transform = np.fft.rfft if parts == 1 else np.fft.fft
    rows = [transform(numbers[:, i : i + 8] * constants["window"]) for i in range(0, 25, 5)]
    values = np.stack(rows, 1)
    require_same([found], [np.stack([values.real, values.imag], -1).astype("float32")])


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("by_channel", [False, True])
def test_quantized_convolution(kind: str, by_channel: bool) -> None:
    rng = np.random.default_rng()
    limits = np.iinfo(kind)
    x = rng.integers(limits.min, limits.max, (1, 4, 7, 8)).astype(kind)
    w = rng.integers(-128, 127, (6, 2, 3, 3)).astype("int8")
    scale = rng.uniform(0.01, 0.02, 6).astype("float32")
    constants = {
        "xs": np.array(0.02, "float32"),
        "xz": np.array(3, kind),
        "w": w,
        "ws": scale if by_channel else scale[:1].reshape(()),
        "wz": np.zeros(6 if by_channel else (), "int8"),
        "ys": np.array(0.07, "float32"),
        "yz": np.array(5, kind),
        "b": rng.integers(-500, 500, 6).astype("int32"),
    }
    node = helper.make_node(
        *("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"]),
        group=2,
        pads=[1, 0, 1, 2],
        strides=[2, 1],
    )
    model = model_of([node], {"x": x}, ["y"], constants)
    # One more or less where a product lies half-way: factors are multiplied in another order.
    (found,), (wanted,) = by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x})
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert np.abs(found.astype("int32") - wanted.astype("int32")).max() <= 1
    assert (found == wanted).mean() > 0.9


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_integer_products(kind: str) -> None:
    rng = np.random.default_rng()
    limits = np.iinfo(kind)
    given = {
        name: rng.integers(limits.min, limits.max, shape).astype(kind)
        for name, shape in (("a", (5, 300)), ("b", (300, 7)))
    }
    constants = {"az": np.array(7, kind), "bz": np.array(2, kind)}
    node = helper.make_node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])
    model = model_of([node], given, ["y"], constants)
    wide = [given["a"].astype("int32") - 7, given["b"].astype("int32") - 2]
    require_same(by_importer(model, given), [wide[0] @ wide[1]])


def test_integer_convolution_in_every_rank() -> None:
    rng = np.random.default_rng()
    for rank in (1, 2, 3):
        given = {
            "x": rng.integers(0, 255, (1, 3, *[6] * rank)).astype("uint8"),
            "w": rng.integers(0, 255, (2, 3, *[3] * rank)).astype("uint8"),
        }
        constants = {"xz": np.array(100, "uint8"), "wz": np.array(128, "uint8")}
        node = helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], pads=[1] * 2 * rank)
        model = model_of([node], given, ["y"], constants)
        require_same(by_importer(model, given), by_reference(model, given))


@pytest.mark.parametrize("values", [(-1.5, 2.0), (0.5, 2.0), (-2.0, -0.25), (0.0, 0.0)])
def test_dynamic_quantization(values: tuple[float, float]) -> None:
    x = np.random.default_rng().uniform(*values, (3, 4)).astype("float32")
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    model = model_of([node], {"x": x}, ["y", "s", "z"])
    (y, s, z), (wy, ws, wz) = by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x})
    assert (s, z) == (pytest.approx(ws, rel=1e-6), wz)
    assert np.abs(y.astype(int) - wy.astype(int)).max() <= 1


def test_sequences_backwards() -> None:
    x, lengths = fresh(5, 3, 2), np.array([1, 5, 3])
    node = helper.make_node("ReverseSequence", ["x", "n"], ["y"], time_axis=0, batch_axis=1)
    model = model_of([node], given := {"x": x, "n": lengths}, ["y"])
    require_same(by_importer(model, given), by_onnxruntime(model, given), 0)


def test_places_of_maxima() -> None:
    x = fresh(2, 3, 7, 8)
    for attributes in (
        {"pads": [1, 0, 1, 1], "strides": [2, 2]},
        {"storage_order": 1, "strides": [2, 3], "ceil_mode": 1},
        {"dilations": [2, 1]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 1]},
    ):
        node = helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 3], **attributes)
        model = model_of([node], {"x": x}, ["y", "i"])
        require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}), 0)


def test_norms_with_their_further_results() -> None:
    given = {"x": fresh(2, 3, 4), "w": fresh(4), "b": fresh(4)}
    node = helper.make_node("LayerNormalization", list(given), ["y", "m", "d"], axis=-1)
    model = model_of([node], given, ["y", "m", "d"])
    require_same(by_importer(model, given), by_onnxruntime(model, given))
    # In training mode a batch norm normalizes by what it sees, and says so.
    given = {"x": fresh(2, 3, 4), "s": fresh(3), "b": fresh(3), "m": fresh(3), "v": fresh(3) + 2}
    node = helper.make_node(
        "BatchNormalization", list(given), ["y", "rm", "rv"], training_mode=1, momentum=0.7
    )
    model = model_of([node], given, ["y", "rm", "rv"])
    require_same(by_importer(model, given), by_reference(model, given))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_local_response_norms(size: int) -> None:
    x = fresh(1, 6, 3, 3)
    node = helper.make_node("LRN", ["x"], ["y"], size=size, alpha=0.5, bias=1.5)
    model = model_of([node], {"x": x}, ["y"])
    # The standard's formula: its evaluator leaves out a factor, and onnxruntime even windows.
    total = np.zeros_like(x)
    for channel in range(6):
        window = slice(max(0, channel - (size - 1) // 2), channel + size // 2 + 1)
        total[:, channel] = (x[:, window] ** 2).sum(1)
    require_same(by_importer(model, {"x": x}), [x / (1.5 + 0.5 / size * total) ** 0.75])


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("kind", ["float32", "int32"])
@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"])
def test_reductions_over_nothing(operator: str, kind: str, kept: int) -> None:
    x = np.zeros((2, 0, 3), kind)
    node = helper.make_node(operator, ["x", "axes"], ["y"], keepdims=kept)
    model = model_of([node], {"x": x}, ["y"], {"axes": np.array([1])}, opset=20)
    values = {
        "ReduceSum": 0,
        "ReduceProd": 1,
        "ReduceMax": -np.inf if kind == "float32" else np.iinfo(kind).min,
        "ReduceMin": np.inf if kind == "float32" else np.iinfo(kind).max,
    }
    (found,) = by_importer(model, {"x": x})
    wanted = np.full((2, 1, 3) if kept else (2, 3), values[operator], kind)
    assert found.dtype == wanted.dtype
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize(
    "attributes",
    [
        {"starts": [1, 0], "ends": [100, -1], "axes": [1, -1]},
        {"starts": [0, 1, -3], "ends": [1, 3, 2**31 - 1]},
    ],
    ids=["axes", "no-axes"],
)
def test_slice_by_attributes(attributes: dict[str, Any]) -> None:
    """Of operator set 9, where nothing of it is an input."""
    x = fresh(2, 3, 4, 5)
    model = model_of([helper.make_node("Slice", ["x"], ["y"], **attributes)], {"x": x}, ["y"])
    model.opset_import[0].version = 9
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


@pytest.mark.parametrize("opset", [9, 10, 11])
def test_largest_elements_of_each_operator_set(opset: int) -> None:
    """Their number is an attribute, then an input."""
    # All different, however they are drawn.
    x = np.random.default_rng().permutation(120).reshape(2, 3, 4, 5).astype("float32")
    attribute, name = ({"k": 2}, []) if opset < 10 else ({}, ["k"])
    node = helper.make_node("TopK", ["x", *name], ["y", "places"], axis=2, **attribute)
    constants = {"k": np.asarray([2])} if name else {}
    model = model_of([node], {"x": x}, ["y", "places"], constants, opset=opset)
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
def test_the_largest_in_any_order(axis: int, largest: int) -> None:
    rng = np.random.default_rng()
    x = rng.permutation(60).astype("float32").reshape(5, 12)  # No two are alike.
    node = helper.make_node(
        *("TopK", ["x", "k"], ["values", "places"]), axis=axis, largest=largest, sorted=0
    )
    model = model_of([node], {"x": x}, ["values", "places"], {"k": np.array([3])})
    values, places = by_importer(model, {"x": x})
    assert np.array_equal(values, np.take_along_axis(x, places, axis))
    wanted, _ = by_onnxruntime(model, {"x": x})
    assert np.array_equal(np.sort(values, axis), np.sort(wanted, axis))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("fixed", [False, True])
def test_elements_gathered_by_smaller_indices(axis: int, fixed: bool) -> None:
    x = fresh(4, 5, 6)
    places = np.random.default_rng().integers(-4, 4, (2, 3, 4))
    node = helper.make_node("GatherElements", ["x", "i"], ["y"], axis=axis)
    if fixed:
        model = model_of([node], {}, ["y"], {"x": x, "i": places})
        given = {}
    else:
        given = {"x": x, "i": places}
        model = model_of([node], given, ["y"])
    require_same(by_importer(model, given), by_onnxruntime(model, given))


@pytest.mark.parametrize(
    ("shape", "wanted", "allowed"),
    [
        ((0, 3, 4), (3, 0, 4), 1),
        ((0, 3, 4), (4, 0), 1),
        ((2, 0, 4), (0, 5), 1),
        ((2, 0, 4), (0, 0, 4), 0),
        ((2, 0), (-1, 3), 0),
        ((0,), (0, 7, 0), 1),
    ],
)
def test_reshape_of_nothing(shape: tuple[int, ...], wanted: tuple[int, ...], allowed: int) -> None:
    x, y = np.zeros(shape, "float32"), fresh(2, 2)
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["z"], allowzero=allowed),
        helper.make_node("Tanh", ["z"], ["a"]),
        helper.make_node("Tanh", ["y"], ["b"]),
    ]
    given = {"x": x, "y": y}
    model = model_of(nodes, given, ["a", "b"], {"shape": np.array(wanted)})
    answer = by_onnxruntime(model, given)
    require_same(by_importer(model, given), answer)
    require_same(run(normalize(load_model(model).mod), [x, y]), answer)


@pytest.mark.parametrize("operator", ["Sinh", "Cosh"])
def test_hyperbolic_functions_up_to_the_largest_number(operator: str) -> None:
    x = np.array([-89.4, -88.8, -60, -1, -1e-4, 0, 1e-4, 0.5, 20, 88.8, 89.4, 90, -90], np.float32)
    model = model_of([helper.make_node(operator, ["x"], ["y"])], {"x": x}, ["y"])
    with np.errstate(over="ignore"):
        wanted = {"Sinh": np.sinh, "Cosh": np.cosh}[operator](x)
    for found in (by_importer(model, {"x": x}), run(normalize(load_model(model).mod), [x])):
        np.testing.assert_allclose(found[0], wanted, rtol=1e-4)


@pytest.mark.parametrize("axes", [None, [0], [1, -1]])
@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_means_of_whole_numbers(kind: str, axes: list[int] | None) -> None:
    x = np.random.default_rng().integers(-99, 99, (3, 4, 5)).astype(kind)
    constants = {} if axes is None else {"axes": np.asarray(axes)}
    node = helper.make_node("ReduceMean", ["x", *constants], ["y"], keepdims=0)
    model = model_of([node], {"x": x}, ["y"], constants, opset=18)
    mod = normalize(load_model(model).mod)
    for found in (by_importer(model, {"x": x}), run(mod, [x])):
        require_same(found, by_onnxruntime(model, {"x": x}))


@pytest.mark.parametrize("alpha", [1.0, -0.5])
def test_what_is_over_a_threshold(alpha: float) -> None:
    x = np.append(fresh(40), np.float32([np.inf, -np.inf, alpha]))
    node = helper.make_node("ThresholdedRelu", ["x"], ["y"], alpha=alpha)
    model = model_of([node], {"x": x}, ["y"])
    (found,) = by_importer(model, {"x": x})
    np.testing.assert_array_equal(found, by_onnxruntime(model, {"x": x})[0])


@pytest.mark.parametrize("opset", [10, 16])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_regions_at_any_scale(scale: float, ratio: int, opset: int) -> None:
    """Moved by half a pixel of what is looked at, not of what the regions are measured in."""
    x, rng = fresh(2, 3, 9, 8), np.random.default_rng()
    begin = rng.uniform(0, 4, (5, 2))
    regions = np.concatenate([begin, begin + rng.uniform(1, 4, (5, 2))], 1)
    # Of whole eighths, how many samples a region has is the same however it is computed.
    regions = (np.round(regions * 8) / 8 / scale).astype("float32")
    images = rng.integers(0, 2, 5)
    sizes = {"output_height": 3, "output_width": 2, "sampling_ratio": ratio}
    node = helper.make_node("RoiAlign", ["x", "r", "i"], ["y"], spatial_scale=scale, **sizes)
    given = {"x": x, "r": regions, "i": images}
    model = model_of([node], given, ["y"], opset=opset)
    require_same(by_importer(model, given), by_onnxruntime(model, given))


@pytest.mark.parametrize("kept", [0, 1])
def test_logarithms_of_sums_of_nothing_but_zeros(kept: int) -> None:
    x = fresh(4, 5) * 50
    x[1], x[2, :3], x[3, 1] = -np.inf, -np.inf, np.inf
    node = helper.make_node("ReduceLogSumExp", ["x"], ["y"], axes=[1], keepdims=kept)
    model = model_of([node], {"x": x}, ["y"], opset=13)
    (found,) = by_importer(model, {"x": x})
    np.testing.assert_allclose(found, by_onnxruntime(model, {"x": x})[0], 1e-5, 1e-4)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("size", "attributes"),
    [
        ((7, 6), {"pads": [1, 1, 1, 1], "group": 2, "offset_group": 2}),
        ((3, 2), {"strides": [2, 2], "pads": [0, 1, 0, 0], "dilations": [1, 2]}),
    ],
)
def test_deformable_convolution(
    size: tuple[int, int], attributes: dict[str, Any], masked: bool, biased: bool
) -> None:
    """Offsets reach beyond the borders, too."""
    parts = attributes.get("offset_group", 1)
    constants = {"w": fresh(6, 4 // attributes.get("group", 1), 3, 3)}
    inputs = {"x": fresh(2, 4, 7, 6), "offsets": 4 * fresh(2, parts * 18, *size)}
    if masked:
        inputs["mask"] = fresh(2, parts * 9, *size)
    if biased:
        constants["b"] = fresh(6)
    names = ["x", "w", "offsets", "b" if biased else "", "mask" if masked else ""]
    node = helper.make_node("DeformConv", names, ["y"], **attributes)
    model = model_of([node], inputs, ["y"], constants, opset=19)
    require_same(by_importer(model, inputs), by_onnxruntime(model, inputs))
