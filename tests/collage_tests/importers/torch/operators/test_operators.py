"""Operators of exported programs, each beside PyTorch on fresh random inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collage.backends.contract.errors import ModelError
from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.normalize import normalize
from tests.collage_tests.importers.torch.torch_functions import (
    imported,
    places,
    program_of,
    require_agreement,
    rows,
)
from tests.collage_tests.normalize.oracle import run

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
F = torch.nn.functional


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "amax": (lambda x: x.amax((1, 2)), lambda: (rows(3, 4, 5),)),
    "elu": (lambda x: F.elu(x, 0.7), lambda: (rows(3, 40),)),
    "selu": (F.selu, lambda: (rows(3, 40),)),
    "rrelu": (lambda x: F.rrelu(x, 0.2, 0.5), lambda: (rows(3, 40),)),
    "rounded to steps": (
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7), lambda: (rows(4, 50),),
    ),
    "rounded to steps that are given": (
        lambda x, s: torch.fake_quantize_per_tensor_affine(x, s, torch.tensor(2).int(), 0, 15),
        lambda: (rows(4, 50), torch.tensor(0.13)),
    ),
    "rounded to each channel's steps": (
        lambda x, s: torch.fake_quantize_per_channel_affine(
            x, s, torch.tensor([0, 1, -2, 3]).int(), 1, -8, 7
        ),
        lambda: (rows(3, 4, 50), torch.tensor([0.05, 0.11, 0.2, 0.07])),
    ),
    "celu": (lambda x: F.celu(x, 1.7), lambda: (rows(3, 40),)),
    "amin, dimensions kept": (lambda x: x.amin(-1, keepdim=True), lambda: (rows(3, 4),)),
    "min and its place": (lambda x: tuple(x.min(1)), lambda: (rows(3, 9),)),
    "max and its place": (lambda x: tuple(x.max(-1)), lambda: (rows(3, 9),)),
    **{
        f"element type {dtype}": (
            lambda x, dtype=dtype: torch.ops.prims.convert_element_type(x * 3, dtype),
            lambda: (rows(3, 4),),
        )
        for dtype in (torch.float16, torch.float64, torch.int64, torch.bool)
    },
    "any": (lambda x: (x > 2).any(), lambda: (rows(3, 4),)),
    "any along an axis": (lambda x: (x > 0).any(1), lambda: (rows(8, 2),)),
    "product along an axis": (lambda x: x.prod(1), lambda: (rows(3, 4),)),
    "numbers that fall": (lambda x: x + torch.arange(24, 0, -5), lambda: (rows(5),)),
    "numbers in broken steps": (
        lambda x: x + torch.arange(0, 1, 0.1) + torch.arange(3.5)[:1],
        lambda: (rows(10),),
    ),
    "numbers in half precision": (
        lambda x: x + torch.arange(2, -3, -0.5, dtype=torch.bfloat16).float(),
        lambda: (rows(10),),
    ),
    "joined with nothing": (
        lambda x: (torch.cat([torch.tensor([]), x], 1), torch.cat([x[0, 0, :0], x[0, 0]])),
        lambda: (rows(2, 3, 4),),
    ),
    "joined, of two types": (
        lambda x, i: (torch.cat([x, i, i > 1]), torch.cat([i.int(), i]), torch.stack([i > 1, i])),
        lambda: (rows(3, 4), places(4, 3, 4)),
    ),
    **{
        f"{'largest' if largest else 'smallest'} in any order": (
            lambda x, largest=largest: x.topk(3, 1, largest, sorted=False)[0].sort(1)[0],
            lambda: (rows(4, 9),),
        )
        for largest in (True, False)
    },
    "whole numbers divided": (lambda i: i / 3, lambda: (places(50, 4, 5),)),
    "bytes scaled": (lambda x: torch.tanh(x.mul(9).abs().byte() / 255.0), lambda: (rows(5),)),
    "logarithm of whole numbers": (lambda i: torch.log(i + 1), lambda: (places(9, 4),)),
    "truth values added": (lambda x: (x > 0).sum(1), lambda: (rows(3, 7),)),
    "truth values added up": (lambda x: (x > 0).cumsum(1), lambda: (rows(3, 7),)),
    "truth value times number": (lambda x: (x > 0) * x, lambda: (rows(3, 7),)),
    "mean of whole numbers": (lambda i: i.float().mean() + i.sum(), lambda: (places(9, 4),)),
    "a choice": (lambda x, i: torch.where(i > 1, x, i), lambda: (rows(4, 3), places(4, 4, 3))),
    "filled": (lambda x: x.masked_fill(x > 0, -1.0), lambda: (rows(4, 3),)),
    "bags": (
        lambda w, i: F.embedding_bag(i, w, mode="mean"), lambda: (rows(9, 4), places(9, 3, 5)),
    ),
    "bags of several lengths": (
        lambda w, i, o: F.embedding_bag(i, w, o, mode="sum"),
        lambda: (rows(9, 4), places(9, 7), torch.tensor([0, 2, 2])),
    ),
    **{
        f"bags by {mode}, one row left out: {left_out}": (
            lambda w, i, o, mode=mode, left_out=left_out: F.embedding_bag(
                i, w, o, mode=mode, padding_idx=3 if left_out else None
            ),
            lambda: (rows(5, 4), places(5, 9), torch.tensor([0, 2, 2, 7])),
        )
        for mode in ("sum", "mean", "max")
        for left_out in (False, True)
    },
    "bags of one length by maxima": (
        lambda w, i: F.embedding_bag(i, w, mode="max"), lambda: (rows(9, 4), places(9, 3, 5)),
    ),
    **{
        f"volumes sampled: {mode}, {beyond}, {corners}": (
            lambda x, g, mode=mode, beyond=beyond, corners=corners: F.grid_sample(
                x, g, mode, beyond, corners
            ),
            lambda: (rows(2, 3, 4, 5, 6), rows(2, 2, 3, 4, 3)),
        )
        for mode in ("bilinear", "nearest")
        for beyond in ("zeros", "border", "reflection")
        for corners in (False, True)
    },
    "weighed bags": (
        lambda w, i, s: F.embedding_bag(i, w, mode="sum", per_sample_weights=s),
        lambda: (rows(9, 4), places(9, 3, 5), rows(3, 5)),
    ),
    "floored quotients": (
        lambda x, i: (torch.div(x, 0.7, rounding_mode="floor"), i // 2, (i + 0.5) // 2),
        lambda: (rows(9), places(9, 5) - 4),
    ),
    "quotients cut off": (
        lambda x, i: (torch.div(x, 0.7, rounding_mode="trunc"),
                      torch.div(i, 3, rounding_mode="trunc")),
        lambda: (rows(9), places(9, 12) - 4),
    ),
    **{
        f"padded {mode}": (
            lambda x, mode=mode: F.pad(x, (1, 2, 2, 1), mode=mode), lambda: (rows(2, 3, 5, 6),),
        )
        for mode in ("reflect", "replicate", "circular")
    },
    **{
        f"padded {mode} along {rank} axes": (
            lambda x, mode=mode, rank=rank: F.pad(x, (2, 1) * rank, mode=mode),
            lambda rank=rank: (rows(2, 3, *(4, 5, 6)[:rank]),),
        )
        for mode in ("reflect", "replicate") for rank in (1, 3)
    },
    "padded by reflection and cut off": (
        lambda x: F.pad(x, (2, -1, 1, 0), mode="reflect"), lambda: (rows(2, 3, 5, 6),),
    ),
    "padded and cut off": (lambda x: F.pad(x, (-1, 2, 3, -2), value=2.5), lambda: (rows(2, 5, 6),)),
    "folded": (
        lambda x: F.fold(x, (8, 6), (3, 2), padding=1, stride=2), lambda: (rows(1, 12, 16),),
    ),
    "unfolded": (lambda x: F.unfold(x, 3, padding=1, stride=2), lambda: (rows(1, 2, 8, 6),)),
    "windows": (lambda x: x.unfold(2, 4, 2).unfold(3, 3, 1), lambda: (rows(1, 2, 9, 7),)),
    "a walk over memory": (lambda x: x.as_strided((3, 2), (2, 5), 1), lambda: (rows(4, 4),)),
    "distances": (lambda x, y: torch.cdist(x, y), lambda: (rows(2, 4, 3), rows(2, 5, 3))),
    "distances of other orders": (
        lambda x, y: tuple(torch.cdist(x, y, p) for p in (1.0, 3.0, math.inf)),
        lambda: (rows(2, 4, 3), rows(2, 5, 3)),
    ),
    "norms": (
        lambda x: tuple(
            torch.linalg.vector_norm(x, order, axes, keepdim=axes == 1)
            for order in (2, 1, 0, 3.5, -1, math.inf, -math.inf)
            for axes in (None, 1, (0, -1))
        ),
        lambda: (rows(3, 4, 5),),
    ),
    **{
        f"sampled on a grid, {how}, {beyond}, corners aligned: {corners}": (
            lambda x, g, how=how, beyond=beyond, corners=corners: F.grid_sample(
                x, g, how, beyond, align_corners=corners
            ),
            lambda: (rows(2, 3, 5, 6), torch.rand(2, 4, 3, 2) * 2.4 - 1.2),
        )
        for how in ("bilinear", "nearest", "bicubic")
        for beyond in ("zeros", "border", "reflection")
        for corners in (False, True)
    },
    "an affine grid": (
        lambda t: F.affine_grid(t, [1, 2, 4, 5], align_corners=False), lambda: (rows(1, 2, 3),),
    ),
}  # fmt: skip


CASES |= {
    "whole numbers bounded": (
        lambda i: (i.clamp(max=7), i.clamp(min=3), i.clamp(2, 9)),
        lambda: (places(12, 40),),
    ),
    "bounded by tensors": (
        lambda x, y: (x.clamp(min=y), x.clamp(y, y + 1), x.clamp_max(0.3), x.clamp_min(0.1)),
        lambda: (rows(5, 7), rows(7)),
    ),
    **{
        f"scattered {reduce}, what was there left out: {not own}": (
            lambda x, i, y, reduce=reduce, own=own: (
                x.scatter_reduce(0, i, y, reduce, include_self=own),
                (x * 9).int().scatter_reduce(0, i, (y * 9).int(), reduce, include_self=own),
            ),
            lambda: (rows(6, 4), places(5, 9, 4), rows(9, 4)),
        )
        for reduce in ("sum", "prod", "mean", "amax", "amin")
        for own in (True, False)
    },
    "adaptive maxima": (
        lambda x: (F.adaptive_max_pool2d(x, 1), F.adaptive_max_pool2d(x, (4, 5))),
        lambda: (rows(2, 3, 7, 9),),
    ),
    "bilinear forms": (
        lambda x, y, w, b: F.bilinear(x, y, w, b),
        lambda: (rows(4, 5), rows(4, 3), rows(2, 5, 3), rows(2)),
    ),
    "repeated as often as told": (
        lambda x, n: x.repeat_interleave(n, 1, output_size=6),
        lambda: (rows(2, 4, 3), torch.tensor([2, 0, 3, 1])),
    ),
    "the third smallest": (
        lambda x: tuple(x.kthvalue(3, 1, keepdim=True)) + tuple(x.kthvalue(2, 0)),
        lambda: (rows(4, 7),),
    ),
    "running maxima and their places": (
        lambda x: tuple(torch.cummax((x * 2).round(), 1)),
        lambda: (rows(3, 13, 2),),
    ),
    "running minima of whole numbers": (
        lambda i: tuple(torch.cummin(i, -1)),
        lambda: (places(9, 4, 8),),
    ),
    "running sum of exponentials": (
        lambda x: torch.logcumsumexp(torch.where(x > 0, x * 50, -math.inf), 1),
        lambda: (rows(3, 9),),
    ),
    "places in sorted rows": (
        lambda a, x: (torch.searchsorted(a, x), torch.searchsorted(a, x, right=True)),
        lambda: (places(5, 3, 9).sort(-1)[0], places(6, 3, 7)),
    ),
    "places in one sorted row": (
        lambda a, x: torch.searchsorted(a, x, out_int32=True),
        lambda: (rows(9).sort(-1)[0], rows(2, 3, 4)),
    ),
    "Cholesky factors": (
        lambda x: torch.linalg.cholesky(x @ x.mT + 3 * torch.eye(4)),
        lambda: (rows(2, 5, 4, 4).clamp(-1, 1),),
    ),
    "inverses": (
        lambda x: torch.linalg.inv(x.roll(1, -1) + 5 * torch.eye(4).roll(1, 0)),
        lambda: (rows(2, 5, 4, 4).clamp(-1, 1),),
    ),
    "inverse of one": (
        lambda x: torch.inverse(x + 5 * torch.eye(3)),
        lambda: (rows(3, 3).clamp(-1, 1),),
    ),
    "systems": (
        lambda x, b: torch.linalg.solve(x.flip(-1) + 6 * torch.eye(5).flip(0), b),
        lambda: (rows(2, 5, 5).clamp(-1, 1), rows(2, 5, 3)),
    ),
    "determinants": (
        lambda x: torch.linalg.det(torch.cat([x, torch.zeros_like(x[:1])])),
        lambda: (rows(6, 4, 4).clamp(-1, 1),),
    ),
    "places of maxima": (
        lambda x: F.max_pool2d(x.relu(), (3, 2), 2, (1, 0), (2, 1), True, return_indices=True),
        lambda: (rows(2, 3, 7, 9),),
    ),
    "places of maxima of volumes": (
        lambda x: F.max_pool3d(x, 2, 2, ceil_mode=True, return_indices=True),
        lambda: (rows(3, 7, 5, 4),),
    ),
    "places of adaptive maxima": (
        lambda x: F.adaptive_max_pool2d(x, (3, 2), return_indices=True),
        lambda: (rows(1, 3, 7, 8),),
    ),
    "unpooled": (
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        lambda: (rows(1, 3, 6, 8),),
    ),
    "sums over a divisor": (
        lambda x: F.avg_pool2d(x, (3, 2), 2, 1, True, divisor_override=5),
        lambda: (rows(2, 8, 9),),
    ),
    "sums of volumes over a divisor": (
        lambda x: F.avg_pool3d(x, 3, 2, 1, divisor_override=5),
        lambda: (rows(1, 2, 8, 9, 6),),
    ),
    "adaptive maxima of rows": (lambda x: F.adaptive_max_pool1d(x, 3), lambda: (rows(2, 3, 7),)),
    "adaptive maxima of volumes": (
        lambda x: F.adaptive_max_pool3d(x, (3, 2, 4)),
        lambda: (rows(1, 2, 4, 5, 7),),
    ),
    "the number of two": (
        lambda x, y: (torch.fmax(x, y), torch.fmin(x, y)),
        lambda: (torch.tensor([math.nan, 1, math.nan, 2]), torch.tensor([3, math.nan] * 2)),
    ),
    "two to the power": (torch.exp2, lambda: (rows(3, 40),)),
    "variance and mean": (lambda x: torch.var_mean(x, 1), lambda: (rows(3, 9),)),
    "deviation and mean": (
        lambda x: torch.std_mean(x, (0, 2), correction=0, keepdim=True),
        lambda: (rows(3, 4, 5),),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_operator_agrees_with_torch(case: str) -> None:
    require_agreement(*CASES[case])


@pytest.mark.parametrize("bounds", [{"max": 7}, {"min": 3}, {"min": 2, "max": 9}])
def test_whole_numbers_are_bounded_in_what_is_compiled(bounds: dict[str, int]) -> None:
    i = places(12, 40)
    mod = normalize(load_model(program_of(lambda i: i.clamp(**bounds), i)).mod)
    np.testing.assert_array_equal(run(mod, [i.numpy()])[0], i.clamp(**bounds).numpy())


@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
def test_norms_in_half_precision_are_computed_in_single(scale: float) -> None:
    """The squares of small numbers would vanish, those of large ones overflow."""
    x = (rows(8, 40) * scale).half()
    (found,) = imported(lambda x: torch.linalg.vector_norm(x, dim=1), x)
    wanted = torch.linalg.vector_norm(x.double(), dim=1).numpy()
    np.testing.assert_allclose(found.astype("float64"), wanted, rtol=2**-10)


def test_normalized_weights_are_folded_as_exactly_as_in_torch() -> None:
    """The norms of small weights were off by half a percent, since their squares nearly vanish."""
    conv = torch.nn.Conv1d(16, 16, 33)
    torch.nn.init.normal_(conv.weight, std=1e-3)
    module = torch.nn.utils.parametrizations.weight_norm(conv).half().eval()
    x = rows(1, 16, 50).half()
    mod = normalize(load_model(torch.export.export(module, (x,), strict=False)).mod)
    (found,) = evaluate(mod, [x.numpy()])
    with torch.no_grad():
        eager = module(x).double()
        wanted = module.double()(x.double())
    error, bound = (np.sqrt(np.mean((y - wanted.numpy()) ** 2)) for y in (found, eager.numpy()))
    assert error <= 2 * bound


@pytest.mark.parametrize("draw", [torch.rand_like, torch.poisson, lambda x: x.multinomial(2)])
def test_what_draws_random_numbers_is_refused_as_such(draw: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match="draws random numbers"):
        load_model(program_of(lambda x: x + draw(x).sum(), rows(3, 4).abs()))


def test_all_that_is_missing_is_named_at_once() -> None:
    def function(x: Any) -> Any:
        return torch.special.airy_ai(x) + torch.linalg.eigvalsh(x)

    with pytest.raises(ModelError, match="cannot be imported") as caught:
        load_model(program_of(function, rows(4, 4)))
    assert "airy_ai" in str(caught.value) and "_linalg_eigh" in str(caught.value)
