"""Networks that PyTorch's own tools quantized, beside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collage.backends.contract.errors import ModelError
from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.importers.torch.exporting.module import export_module
from collage.normalize import normalize
from tests.collage_tests.importers.torch.torch_functions import (
    Cases,
    program_of,
    require_agreement,
    rows,
)
from tests.collage_tests.normalize.oracle import operators

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
# What `pt2e` puts into programs is defined here, by PyTorch itself.
pytest.importorskip("torch.ao.quantization.fx._decomposed")
steps = torch.ops.quantized_decomposed

WHOLE = torch.arange(-8, 8, dtype=torch.int8).reshape(4, 4)
SCALES, ZEROS = torch.linspace(0.01, 0.1, 4), torch.tensor([0, 1, -2, 3])


def _there_and_back(x: Any, low: int, high: int, kind: Any) -> Any:
    there = steps.quantize_per_tensor(x, 0.03, 5, low, high, kind)
    return steps.dequantize_per_tensor(there, 0.03, 5, low, high, kind)


def _dynamic(x: Any, choose: Any, low: int, high: int, kind: Any) -> Any:
    scale, zero = choose(x, low, high, 2**-12, kind)
    there = steps.quantize_per_tensor(x, scale, zero, low, high, kind)
    return steps.dequantize_per_tensor(there, scale, zero, low, high, kind), there, scale


def _weight(zeros: Any, kind: Any = None) -> Any:
    return steps.dequantize_per_channel(
        WHOLE, SCALES, zeros, 0, -128, 127, torch.int8, out_dtype=kind
    )


def _channels(x: Any, zeros: Any) -> Any:
    return torch.nn.functional.linear(x, _weight(zeros))


def _tokens(x: Any) -> Any:
    scale, zero = steps.choose_qparams_per_token_asymmetric(x, torch.int8)
    there = steps.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
    return steps.dequantize_per_token(there, scale, zero, -128, 127, torch.int8, torch.float32)


def _over_the_largest(x: Any) -> Any:
    step = x.abs().amax(-1, keepdim=True) / 127.5
    return torch.round(x * (1 / step)).clamp(-128, 127).to(torch.int8)


def _groups(x: Any) -> Any:
    scales = torch.linspace(0.01, 0.1, 8).reshape(4, 2)
    weight = steps.dequantize_per_channel_group(
        WHOLE, scales, torch.zeros_like(scales), -8, 7, torch.int8, 2, torch.float32
    )
    return x @ weight.T


CASES: Cases = {
    "bytes": (lambda x: _there_and_back(x, 0, 255, torch.uint8), lambda: (rows(3, 40) * 4,)),
    "fewer steps": (lambda x: _there_and_back(x, -7, 7, torch.int8), lambda: (rows(3, 40),)),
    "two bytes": (lambda x: _there_and_back(x, -999, 999, torch.int16), lambda: (rows(40) * 9,)),
    "of one number": (
        lambda x: _there_and_back(x, 0, 255, torch.uint8),
        lambda: (torch.tensor(1.7),),
    ),
    "range": (
        lambda x: _dynamic(x, steps.choose_qparams, 0, 255, torch.uint8),
        lambda: (rows(3, 40),),
    ),
    "around zero": (
        lambda x: _dynamic(x, steps.choose_qparams_symmetric, -127, 127, torch.int8),
        lambda: (rows(3, 40),),
    ),
    "channels": (lambda x: _channels(x, ZEROS), lambda: (rows(3, 4),)),
    "channels around zero": (lambda x: _channels(x, None), lambda: (rows(3, 4),)),
    "channels as halves": (
        lambda x: x + _weight(None, torch.float16).float(),
        lambda: (rows(4, 4),),
    ),
    "other channels": (
        lambda x: steps.quantize_per_channel(x, SCALES, ZEROS, 1, -128, 127, torch.int8),
        lambda: (rows(3, 4, 5),),
    ),
    # The largest lies by a tie: its step is no other in its last digit.
    "a row's largest": (_over_the_largest, lambda: (-rows(16, 8).abs(),)),
    "tokens": (_tokens, lambda: (rows(3, 40),)),
    "groups": (_groups, lambda: (rows(3, 4),)),
    "sums of bytes": (
        lambda x, y: torch._int_mm(x.to(torch.int8), y.to(torch.int8)),
        lambda: (rows(32, 16) * 40, rows(16, 8) * 40),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_torch(case: str) -> None:
    require_agreement(*CASES[case])


def test_known_steps_are_what_libraries_compute_in_bytes_from() -> None:
    def layer(x: Any) -> Any:
        return _channels(_there_and_back(x, 0, 255, torch.uint8), ZEROS)

    mod = normalize(load_model(program_of(layer, torch.ones(3, 4))).mod)
    assert operators(mod).count("quantize") == 1
    assert operators(mod).count("dequantize") == 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(
    set(torch.backends.quantized.supported_engines) <= {"none"}, reason="no library packs weights"
)
def test_packed_weights_are_refused_with_what_to_do_instead() -> None:
    float_net = torch.nn.Sequential(torch.nn.Linear(4, 4))
    packed = torch.ao.quantization.quantize_dynamic(float_net, {torch.nn.Linear})
    with pytest.raises(ModelError, match=r"packed for one library.*pt2e"):
        export_module(packed, (torch.ones(1, 4),))


class EightBits(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Weights in float8: a parameter with a scale for each row, a buffer, and one turned around."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        rows_of = torch.randn(6, 8)
        scales = rows_of.abs().amax(1, keepdim=True) / torch.finfo(kind).max
        self.weight = torch.nn.Parameter((rows_of / scales).to(kind), requires_grad=False)
        self.register_buffer("scales", scales)
        self.register_buffer("second", torch.randn(6, 4).to(kind))

    def forward(self, x: Any) -> Any:
        x = torch.nn.functional.linear(x, self.weight.to(x.dtype) * self.scales)
        return x @ self.second.t().to(torch.bfloat16).float().t(), self.second[:2].half()


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_weights_of_eight_bits_are_what_they_stand_for(kind: Any) -> None:
    torch.manual_seed(3)
    net, x = EightBits(kind), torch.randn(3, 8)
    found = evaluate(load_model(net, example_inputs=(x,)).mod, [x.numpy()])
    with torch.no_grad():
        wanted = net(x)
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.dtype == theirs.numpy().dtype
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5, atol=1e-5)


def test_values_that_are_rounded_to_eight_bits_are_refused() -> None:
    program = program_of(lambda x: x.to(torch.float8_e4m3fn).float(), rows(2, 3))
    with pytest.raises(ModelError, match="float8_e4m3fn"):
        load_model(program)
