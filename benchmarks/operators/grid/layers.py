"""Losses, distances, norms and gates that few networks have, and products of odd kinds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.operators.case import Call, Ids, OperatorCase, call


def cases() -> Iterator[OperatorCase]:
    for name, make, shape in (
        ("local response 1x64x56x56", functools.partial(nn.LocalResponseNorm, 5), (1, 64, 56, 56)),
        ("group, 3 of 1x96x28x28", functools.partial(nn.GroupNorm, 3, 96), (1, 96, 28, 28)),
        ("group, 7 of 4x77x333", functools.partial(nn.GroupNorm, 7, 77), (4, 77, 333)),
        ("instance 1-D 4x64x400", functools.partial(nn.InstanceNorm1d, 64), (4, 64, 400)),
        ("instance 3-D 1x16x8x28x28", functools.partial(nn.InstanceNorm3d, 16), (1, 16, 8, 28, 28)),
    ):
        yield OperatorCase("norm", name, make, (shape,))
    yield OperatorCase(
        "gate", "prelu per channel 1x77x333", functools.partial(nn.PReLU, 77), ((1, 77, 333),)
    )
    yield call("gate", "glu 128x3072", functools.partial(functional.glu, dim=-1), (128, 3072))
    yield call(
        "gate", "glu channels 1x128x400", functools.partial(functional.glu, dim=1), (1, 128, 400)
    )
    yield call(
        "gate", "softmin 128x1000", functools.partial(functional.softmin, dim=1), (128, 1000)
    )
    yield call("gate", "hard shrink 128x3072", functional.hardshrink, (128, 3072))
    yield call("gate", "soft shrink 128x3072", functional.softshrink, (128, 3072))
    yield call("gate", "celu 128x3072", functional.celu, (128, 3072))
    yield call(
        "gate",
        "renorm 128x768",
        functools.partial(torch.renorm, p=2, dim=0, maxnorm=5.0),
        (128, 768),
    )
    yield call(
        "loss", "cross entropy 128x1000", functional.cross_entropy, (128, 1000), Ids((128,), 1000)
    )
    smooth = functools.partial(functional.cross_entropy, label_smoothing=0.1)
    yield call("loss", "smoothed cross entropy 128x1000", smooth, (128, 1000), Ids((128,), 1000))
    yield call(
        "loss",
        "of points 1x21x128x128",
        functional.cross_entropy,
        (1, 21, 128, 128),
        Ids((1, 128, 128), 21),
    )
    yield call("loss", "huber 128x768", functional.huber_loss, (128, 768), (128, 768))
    yield call("loss", "squares 128x768", functional.mse_loss, (128, 768), (128, 768))
    yield call("loss", "binary with logits 128x768", _binary, (128, 768), (128, 768))
    yield call(
        "loss",
        "divergence 128x768",
        functools.partial(functional.kl_div, log_target=True),
        (128, 768),
        (128, 768),
    )
    yield call("distance", "of pairs 128x768", functional.pairwise_distance, (128, 768), (128, 768))
    yield call("distance", "cosine 128x768", functional.cosine_similarity, (128, 768), (128, 768))
    yield call(
        "distance",
        "cosine channels 1x64x56x56",
        functional.cosine_similarity,
        (1, 64, 56, 56),
        (1, 64, 56, 56),
    )
    for p in (1.0, 2.0, 3.0):
        yield call(
            "distance",
            f"all with all, {p:g}-norm, 128x64",
            functools.partial(torch.cdist, p=p),
            (128, 64),
            (200, 64),
        )
    yield call("distance", "within 100x32", functional.pdist, (100, 32))
    yield OperatorCase(
        "product",
        "bilinear layer 64x32x48 to 40",
        functools.partial(nn.Bilinear, 32, 48, 40),
        ((64, 32), (64, 48)),
    )
    yield call("product", "kron 16x16 and 32x32", torch.kron, (16, 16), (32, 32))
    yield call("product", "vander 256 to 16", functools.partial(torch.vander, N=16), (256,))
    yield call(
        "product",
        "cross 1000x3",
        functools.partial(torch.linalg.cross, dim=1),
        (1000, 3),
        (1000, 3),
    )
    yield call("product", "cartesian 100 and 200", torch.cartesian_prod, (100,), (200,))
    yield call("product", "outer 500 and 700", torch.outer, (500,), (700,))
    for mode in ("sum", "mean", "max"):
        make = functools.partial(_with_table, functools.partial(_bag, mode=mode))
        yield OperatorCase("bag", f"{mode} of 64x20, 10000x64", make, (Ids((64, 20), 10000),))
    weighted = functools.partial(_with_table, _weighted)
    yield OperatorCase(
        "bag", "weighted sum of 64x20, 10000x64", weighted, (Ids((64, 20), 10000), (64, 20))
    )
    offsets = functools.partial(_with_table, _with_offsets)
    yield OperatorCase("bag", "offsets, 1280 of 10000x64", offsets, (Ids((1280,), 10000),))


def _binary(x: Tensor, y: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(x, torch.sigmoid(y))


def _with_table(function: Callable[..., Tensor]) -> Call:
    # Drawn when the case is built, behind the seed: processes list the cases in their own states.
    return Call(function, (torch.randn(10000, 64),))


def _bag(ids: Tensor, table: Tensor, mode: str) -> Tensor:
    return functional.embedding_bag(ids, table, mode=mode)


def _weighted(ids: Tensor, weights: Tensor, table: Tensor) -> Tensor:
    return functional.embedding_bag(ids, table, mode="sum", per_sample_weights=weights)


def _with_offsets(ids: Tensor, table: Tensor) -> Tensor:
    return functional.embedding_bag(
        ids, table, torch.arange(64, device=ids.device) * 20, mode="sum"
    )
