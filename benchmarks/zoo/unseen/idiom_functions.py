"""Functions as people write them, each of a kind that importers trip over."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def functional_call(x: Tensor, w: Tensor) -> object:
    layer = nn.Linear(6, 6, bias=False)
    return torch.func.functional_call(layer, {"weight": w[:6] @ w[:6].T + torch.eye(6)}, (x,))


def per_sample(x: Tensor) -> object:
    return torch.func.vmap(lambda row: torch.outer(row, row).logsumexp(0))(x)


def gradient(x: Tensor) -> object:
    return torch.func.vmap(torch.func.grad(lambda row: (row.sin() * row).sum()))(x)


def jacobian(x: Tensor) -> object:
    return torch.func.jacrev(lambda rows: rows.tanh().sum(0))(x)


def patches(x: Tensor) -> object:
    cut = F.unfold(x, 3, padding=1, stride=2)
    return F.fold(cut * 2, (12, 12), 3, padding=1, stride=2), x.unfold(2, 4, 2).unfold(3, 4, 2)


def unpooled(x: Tensor) -> object:
    small, where = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(small, where, 2)


def warped(x: Tensor) -> object:
    turn = x.new_tensor([[[0.81, -0.53, 0.11], [0.47, 0.79, 0.03]]]).repeat(2, 1, 1)
    grid = F.affine_grid(turn, [2, 4, 9, 10], align_corners=False)
    return [
        F.grid_sample(x, grid, mode, padding, align_corners=False)
        for mode in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
    ]


def looped(x: Tensor) -> object:
    return torch._higher_order_ops.while_loop(
        lambda i, y: i < 5, lambda i, y: (i + 1, y * 0.5 + y.sin()), (torch.tensor(0), x)
    )


def pieces(x: Tensor) -> object:
    first, *rest = x.tensor_split(3, dim=1)
    return {"first": first, "rest": rest, "none": None, "both": (torch.hstack(rest), x.chunk(4))}


def sorted(x: Tensor) -> object:
    values, places = x.sort(1, descending=True)
    return values, x.gather(1, places), x.topk(3, 1), x.kthvalue(2, 1), x.median(1), x.argsort(0)


def counted(ids: Tensor) -> object:
    one_hot = F.one_hot(ids, 11)
    sums = torch.zeros(11).index_add(0, ids.flatten(), torch.ones(ids.numel()))
    return one_hot, sums, torch.bincount(ids.flatten(), minlength=11).clamp(max=3)


def scattered(x: Tensor, y: Tensor) -> object:
    where = (x.abs() * 3).long() % 6
    return [
        torch.scatter(x, 1, where, 1.0),
        torch.zeros_like(x).scatter_add(1, where, y),
        x.scatter_reduce(1, where, y, "amax"),
        x.scatter_reduce(1, where, y, "mean", include_self=False),
        x.index_copy(0, torch.tensor([2, 0]), y[:2]),
        x.index_fill(1, torch.tensor([1]), 7.0),
        x.masked_scatter(torch.eye(4, 6).bool(), y),
        x.index_put((torch.tensor([0, 0]), torch.tensor([1, 1])), y[0, :2], accumulate=True),
    ]


def filtered(x: Tensor) -> object:
    spectrum = torch.fft.rfft(x, norm="ortho")
    cut = spectrum * torch.linspace(1, 0, spectrum.shape[-1])
    return torch.fft.irfft(cut, x.shape[-1], norm="ortho"), spectrum.abs(), spectrum.angle()


def short_time(x: Tensor) -> object:
    found = torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True)
    again = torch.istft(found, 16, 4, window=torch.hann_window(16), length=x.shape[-1])
    return again, found.abs().pow(2).clamp(min=1e-5).log()


def solved(x: Tensor) -> object:
    matrix = x @ x.mT + torch.eye(x.shape[-2])
    lower = torch.linalg.cholesky(matrix)
    return (
        torch.linalg.solve(matrix, x),
        torch.linalg.inv(matrix),
        torch.logdet(matrix),
        torch.linalg.solve_triangular(lower, x, upper=False),
        torch.linalg.matrix_power(matrix, 3),
        torch.linalg.matrix_norm(matrix),
    )


def distances(x: Tensor, y: Tensor) -> object:
    return (
        *(torch.cdist(x, y, p) for p in (1.0, 2.0, float("inf"))),
        F.cosine_similarity(x[:, None], y[None], dim=-1),
        F.pairwise_distance(x, y),
        torch.nn.functional.pdist(x),
    )


def products(x: Tensor, y: Tensor) -> object:
    return (
        torch.einsum("bi,bj->bij", x, y),
        torch.einsum("...i,ki->k...", x, y),
        torch.tensordot(x, y, dims=([0], [0])),
        torch.kron(x[:2, :2], y[:2, :2]),
        torch.linalg.multi_dot([x, y.T, x]),
        torch.baddbmm(x[None], x[None], y[None].mT @ y[None], beta=0.5, alpha=2.0),
        torch.cross(x[:, :3], y[:, 3:], dim=1),
    )


def running(x: Tensor) -> object:
    return (
        x.cumsum(1),
        x.cumprod(0),
        x.logcumsumexp(1),
        x.cummax(1).values,
        x.diff(dim=1),
        torch.trapezoid(x),
        x.flip(1).roll(2, 1),
        torch.rot90(x[None].expand(2, 4, 6), 1, (1, 2)),
    )


def chosen(x: Tensor, y: Tensor) -> object:
    return (
        torch.where(x > y, x, y.nan_to_num()),
        x.masked_fill(x < 0, float("-inf")).softmax(-1).nan_to_num(),
        torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
        torch.searchsorted(x.sort(1).values, y, right=True),
        torch.clamp(x, y - 1, y + 1),
        x.lerp(y, 0.3),
        torch.take_along_dim(x, y.argsort(1), 1),
        torch.isclose(x, y, atol=0.5),
    )


def summed(x: Tensor) -> object:
    return (
        *torch.var_mean(x, dim=(1, 3), correction=0),
        torch.std(x, 2, unbiased=True, keepdim=True),
        x.norm(p=3, dim=1),
        torch.linalg.vector_norm(x, float("inf"), dim=(2, 3)),
        x.aminmax(dim=1).max,
        x.logsumexp((0, 3)),
        x.prod(2),
        x.nanmean(3),
        x.quantile(0.3, dim=3),
        x.count_nonzero(1),
        F.softmin(x.flatten(1), 1),
        x.any(1),
    )


def shaped(x: Tensor) -> object:
    return (
        x.movedim(1, -1).contiguous().view(2, -1),
        x.unflatten(1, (3, 1)).swapaxes(0, 1).squeeze(-3),
        torch.broadcast_to(x[:, :, :1], x.shape),
        torch.meshgrid(x[0, 0, 0], x[0, 0, :, 0], indexing="xy"),
        torch.as_strided(x, (2, 3, 2), (60, 20, 5)),
        x[[1, 0]][:, [[0, 1], [2, 0]]],
        x[..., None, 1:-1],
        torch.block_diag(x[0, 0], x[1, 1]),
        torch.cartesian_prod(x[0, 0, 0], x[0, 1, 0]),
        torch.diag_embed(x[0]).diagonal(1, -2, -1),
        x.repeat_interleave(2, dim=1).tile(1, 1, 2, 1),
        torch.tril(x, -1) + torch.triu(x, 1),
    )


def padded(x: Tensor) -> object:
    return [F.pad(x, (1, 2, 2, 1), mode=mode) for mode in ("reflect", "replicate", "circular")] + [
        F.pad(x, (-1, 2, 0, -3), value=0.5)
    ]


def pooled(x: Tensor) -> object:
    return (
        F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        F.max_pool2d(x, 3, 2, 1, 2, ceil_mode=True),
        F.adaptive_avg_pool2d(x, (5, 7)),
        F.adaptive_max_pool2d(x, 5),
        F.lp_pool2d(x, 2, 3, 2),
        F.avg_pool2d(x, (2, 3), divisor_override=4),
    )


def activated(x: Tensor) -> object:
    names = (
        *("elu", "selu", "celu", "glu", "hardshrink", "softshrink", "tanhshrink", "logsigmoid"),
        *("hardswish", "hardsigmoid", "hardtanh", "relu6", "leaky_relu", "softplus", "softsign"),
        *("silu", "mish", "gelu", "rrelu", "threshold"),
    )
    given: dict[str, tuple[float, ...]] = {"threshold": (0.1, 0.7)}
    return [getattr(F, name)(x, *given.get(name, ())) for name in names]


def losses(x: Tensor, y: Tensor) -> object:
    return (
        F.cross_entropy(x, y.argmax(1), label_smoothing=0.1),
        F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
        F.huber_loss(x, y, delta=0.5),
        F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=torch.full((6,), 2.0)),
        F.triplet_margin_loss(x, y, x.flip(0)),
    )


def special(x: Tensor) -> object:
    return (
        torch.erfinv(x * 0.9),
        torch.special.xlog1py(x, x),
        torch.lgamma(x + 1),
        torch.digamma(x + 1),
        torch.special.i0e(x),
        torch.sinc(x),
        torch.special.entr(x),
        torch.logit(x, 1e-3),
        torch.special.ndtri(x * 0.98 + 0.01),
        torch.frexp(x).mantissa,
        torch.heaviside(x - 0.5, torch.tensor(0.5)),
        torch.atan2(x, x - 0.5),
        torch.fmod(x * 7, 2.0),
        torch.remainder(-x * 7, 2.0),
        torch.nextafter(x, x + 1),
        torch.hypot(x, x * 2),
    )


def integers(ids: Tensor) -> object:
    return (
        ids // 3,
        -ids % 3,
        ids << 2 | ids & 5 ^ 3,
        torch.div(-ids, 4, rounding_mode="trunc"),
        torch.gcd(ids, ids + 6),
        ids.float().round().to(torch.uint8) * 40,
        (ids * 2**20).to(torch.int32) * 4,
        torch.bitwise_not(ids.bool()),
        ids.cumsum(1),
    )
