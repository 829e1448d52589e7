"""Families of operators beside PyTorch: in every element type, at every rank, without elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import collage
from collage.backends.contract.errors import ModelError
from collage.cost.models import DeviceSpec, RooflineCostModel
from collage.importers import load_model
from tests.collage_tests.importers.torch.torch_functions import (
    imported,
    places,
    program_of,
    require_agreement,
    rows,
)

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)

_ANY_CPU = RooflineCostModel(DeviceSpec("a processor", 1e11, 1e11, 1e11, bytes_per_sec=1e10))

ARITHMETIC: dict[str, Callable[..., Any]] = {
    "sums with a factor": lambda x, y: (
        torch.add(x, y, alpha=2),
        torch.sub(x, y, alpha=3),
        torch.rsub(x, y, alpha=2),
        torch.add(x, 1, alpha=2),
    ),
    "products": lambda x, y: (x * y, x * 2),
    "extremes of two": lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y)),
    "compared": lambda x, y: (x == y, x != y, x < y, x <= y, x > 1.5, x >= 1, x == 0.5),
    "extremes": lambda x, y: (x.amax(0), x.max(), x.min(), y.amin(), x.max(1)[0], y.aminmax()),
    "bounded": lambda x, y: (x.clamp(y), x.clamp(max=1), x.clamp(y, y)),
    "asked": lambda x, y: (torch.isnan(x), torch.isinf(y), torch.isfinite(x), torch.isclose(x, y)),
    "signs": lambda x, y: (torch.sign(x), torch.sgn(y), torch.copysign(x, y), torch.signbit(x)),
}


def _flat(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *inputs: tuple(torch.utils._pytree.tree_leaves(function(*inputs)))


def _drawn(kind: Any, *shape: int) -> Any:
    if kind == torch.bool:
        return rows(*shape) > 0
    return (rows(*shape) * 3).round().to(kind)


@pytest.mark.parametrize("kind", ["float32", "int64", "int32", "bool"])
@pytest.mark.parametrize("case", ARITHMETIC)
def test_arithmetic_is_in_pytorchs_types(case: str, kind: str) -> None:
    if case in ("sums with a factor", "bounded") and kind == "bool":
        pytest.skip("PyTorch has none of truth values")
    wanted = getattr(torch, kind)
    draw = lambda: (_drawn(wanted, 3, 4), _drawn(wanted, 3, 4))  # noqa: E731
    require_agreement(_flat(ARITHMETIC[case]), draw)


def test_powers_of_whole_numbers() -> None:
    base = torch.tensor([0, 1, -1, 2, -4, -3]).reshape(-1, 1)
    exponents = torch.tensor([0, 1, 2, 5, 21, 63, 64, 127, -1, -2, 3])
    draw = lambda: (base.repeat(1, 11), exponents.repeat(6, 1))  # noqa: E731
    require_agreement(
        lambda x, y: (torch.pow(x, y), torch.pow(3, y), torch.pow(x.clamp(-1, 1), y + 200)), draw
    )


def test_shifts() -> None:
    steps = torch.tensor([0, 1, 5, 31, 62, 63, 64, -1])
    draw = lambda: (torch.tensor([[5], [-7], [1 << 40]]).repeat(1, 8), steps.repeat(3, 1))  # noqa: E731
    require_agreement(lambda x, y: (x << y, x >> y, x << 2), draw)


SPECIAL = {
    **{name: getattr(torch, name) for name in ("lgamma", "digamma", "erfc", "i0", "sinh", "cosh")},
    "trigamma": lambda x: torch.polygamma(1, x),
    "scaled": lambda x: (torch.special.i0e(x), torch.special.i1e(x), torch.special.i1(x)),
    "shares": lambda x: (torch.special.erfcx(x), torch.special.log_ndtr(x * 5)),
    "quantiles": lambda x: (torch.erfinv(x / 10), torch.special.ndtri(x / 20 + 0.5)),
    "airy": lambda x: torch.special.airy_ai(x + 3),
    "zeta": lambda x: (
        torch.special.zeta(x.abs() + 1.5, 2.5),
        torch.special.zeta(3.0, x.abs() + 0.3),
    ),
    "chebyshev": lambda x: (
        torch.special.chebyshev_polynomial_t(x / 9, 5),
        torch.special.shifted_chebyshev_polynomial_v(x / 9, (x.abs() / 2)),
    ),
    "orthogonal": lambda x: (
        torch.special.hermite_polynomial_h(x / 9, 4),
        torch.special.hermite_polynomial_he(x / 9, 4),
        torch.special.laguerre_polynomial_l(x / 9, 4),
        torch.special.legendre_polynomial_p(x / 9, 4),
    ),
    "of several": lambda x: torch.mvlgamma(x.abs() + 2, 3),
}


@pytest.mark.parametrize("case", SPECIAL)
def test_special_functions(case: str) -> None:
    edges = [0.0, -0.0, 1e-6, 3.75, 9.5, -3.0, math.inf, math.nan]
    x = torch.cat([torch.linspace(-9.3, 9.3, 100), torch.tensor(edges)])
    polynomials = case in ("chebyshev", "orthogonal")
    if case in ("i0", "sinh", "cosh", "quantiles", "scaled", "shares", "zeta") or polynomials:
        x = x[~torch.isinf(x)]
    if case == "trigamma":
        x = x[x != -3]  # A pole, of which PyTorch's is a large number.
    if polynomials:
        x = x[~torch.isnan(x)]  # PyTorch's of these are whatever stood in memory.
    function = _flat(SPECIAL[case])
    # PyTorch's own are coarser in float32, some of them.
    for mine, theirs in zip(imported(function, x), function(x.double()), strict=True):
        np.testing.assert_allclose(mine, theirs.float().numpy(), rtol=2e-6, atol=2e-6)


def test_special_functions_are_refused_where_they_are_too_coarse() -> None:
    with pytest.raises(ModelError, match="float32 alone"):
        load_model(program_of(torch.erfinv, rows(3).double()))


@pytest.mark.parametrize("kind", ["float32", "int64", "bool"])
def test_sorted(kind: str) -> None:
    def function(x: Any) -> Any:
        return (*x.sort(dim=1, stable=True), *x.sort(dim=0, stable=True, descending=True))

    require_agreement(_flat(function), lambda: (_drawn(getattr(torch, kind), 5, 9),))


def test_what_is_refused_has_a_reason() -> None:
    function = _flat(
        lambda x, i: (
            torch.linalg.ldl_factor(x)[0],
            torch.special.laguerre_polynomial_l(x, x),
            torch.histogram(x, torch.arange(4.0))[0],
        )
    )
    with pytest.raises(ModelError) as caught:
        load_model(program_of(function, rows(3, 3), places(9, 3)))
    for reason in (
        "a decomposition of a matrix",
        "degree is a tensor",
        "there is no converter",
    ):
        assert reason in str(caught.value)
    with pytest.raises(ModelError, match="bincount: the shape of its result depends on data"):
        load_model(program_of(torch.bincount, places(9, 5)))
    with pytest.raises(ModelError, match="convert them to float"):
        load_model(program_of(lambda i: torch.nn.functional.avg_pool2d(i, 2), places(9, 1, 4, 4)))


def _positive(*shape: int) -> Any:
    x = rows(*shape).clamp(-1, 1)
    return x @ x.mT + 4 * torch.eye(shape[-1])


APART: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "hypot": (
        torch.hypot, lambda: (torch.tensor([0, 3, 2e38, math.inf]), torch.ones(4) * 2),
    ),
    "angle": (torch.angle, lambda: (torch.tensor([1.0, -2, 0, math.nan]),)),
    "addbmm": (
        lambda x, a, b: torch.addbmm(x, a, b, beta=0.5, alpha=2),
        lambda: (rows(3, 4), rows(2, 3, 5), rows(2, 5, 4)),
    ),
    "addmm of whole numbers": (
        lambda x, a, b: (torch.addmm(x, a, b, beta=3, alpha=2), a @ b),
        lambda: (places(9, 3, 4), places(9, 3, 5), places(9, 5, 4)),
    ),
    **{
        f"index_reduce {how}": (
            lambda x, i, y, how=how: x.index_reduce(0, i, y, how, include_self=how != "mean"),
            lambda: (rows(5, 3), places(5, 7), rows(7, 3)),
        )
        for how in ("mean", "amax", "prod")
    },
    "scattered with a sum": (
        lambda x, i, y: (x.scatter(0, i, y, reduce="add"), x.scatter(0, i, 2.0, reduce="multiply")),
        lambda: (rows(5, 3), places(5, 7, 3), rows(7, 3)),
    ),
    "put": (
        lambda x, i, y: x.put(i, y),
        lambda: (rows(3, 4), torch.tensor([[0, 5], [-1, 3]]), rows(2, 2)),
    ),
    "as_strided_scatter": (
        lambda x, y: x.as_strided_scatter(y, (2, 3), (5, 1), 1), lambda: (rows(4, 4), rows(2, 3)),
    ),
    **{
        f"diagonal_scatter {offset}": (
            lambda x, y, offset=offset: x.diagonal_scatter(y, offset, 0, 2),
            lambda offset=offset: (rows(4, 2, 5), rows(2, 4 - max(-offset, 0))),
        )
        for offset in (0, 1, -2)
    },
    "nanmedian": (
        lambda x: (x.nanmedian(), *x.nanmedian(1)),
        lambda: (torch.tensor([[3, math.nan, 1, 2], [math.nan, math.nan, 7, 4]]),),
    ),
    "median": (
        lambda x: (x.median(), *x.median(1), x[0].median(), *x[:, 2].median(0, keepdim=True)),
        lambda: (torch.tensor([[3, 5, 1, 2], [4, math.nan, 7, math.nan]]),),
    ),
    "mode": (lambda x: tuple(x.mode(1)), lambda: (places(3, 6, 9),)),
    "histc": (
        lambda x: (x.histc(7, -2, 2), x.histc(5)), lambda: (rows(5, 30),),
    ),
    "pdist": (torch.nn.functional.pdist, lambda: (rows(5, 3),)),
    "logdet": (lambda x: (x.logdet(), *torch.linalg.slogdet(-x)), lambda: (_positive(2, 3, 3),)),
    "Cholesky": (
        lambda x, b: (
            torch.linalg.cholesky(x, upper=True),
            torch.cholesky_solve(b, torch.linalg.cholesky(x)),
            torch.cholesky_inverse(torch.linalg.cholesky(x)),
        ),
        lambda: (_positive(4, 4), rows(4, 2)),
    ),
    "triangular": (
        lambda x, b: (
            torch.linalg.solve_triangular(x, b, upper=True),
            torch.linalg.solve_triangular(x, b.mT, upper=False, left=False),
            torch.linalg.solve_triangular(x, b, upper=False, unitriangular=True),
            torch.triangular_solve(b, x, transpose=True)[0],
        ),
        lambda: (_positive(4, 4), rows(4, 2)),
    ),
    "padded around what was cut off": (
        lambda x: torch.nn.functional.pad(x, (-1, 1, 2, -1), mode="circular"),
        lambda: (rows(1, 3, 4, 5),),
    ),
    "norms with their moments": (
        lambda x, w: (
            *torch.native_layer_norm(x, [5], None, w, 1e-5),
            *torch.native_group_norm(x, None, None, 2, 4, 15, 2, 1e-5),
            torch.nn.functional.group_norm(x, 2),
        ),
        lambda: (rows(2, 4, 3, 5), rows(5)),
    ),
    "moments": (
        lambda x: (*torch.var_mean(x), *torch.std_mean(x, correction=0)), lambda: (rows(3, 4),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", APART)
def test_what_is_taken_apart_here(case: str) -> None:
    function, draw = APART[case]
    require_agreement(_flat(function), draw)


def test_group_norms_of_bfloat16_are_rounded_once() -> None:
    torch.manual_seed(7)
    x, factor, shift = rows(2, 4, 3, 5).bfloat16(), rows(4).bfloat16(), rows(4).bfloat16()
    norm = torch.nn.functional.group_norm
    (found,) = imported(lambda *given: norm(given[0], 2, *given[1:]).float(), x, factor, shift)
    exact = norm(x.double(), 2, factor.double(), shift.double()).numpy()
    np.testing.assert_allclose(found, exact, rtol=2**-8, atol=1e-6)


def test_tensors_of_rank_0_have_an_axis() -> None:
    def function(x: Any, i: Any) -> Any:
        return (
            *(x.max(0), x.sum(0), x.softmax(0), x.log_softmax(-1), x.cumsum(0), x.unfold(0, 1, 1)),
            *(x.argmax(0), x.kthvalue(1), x.amin(0, keepdim=True), x.index_select(0, i), x.sort()),
        )

    require_agreement(_flat(function), lambda: (torch.tensor(1.5), torch.tensor([0])))


def test_nothing_is_computed_of_nothing() -> None:
    """Extents of 0 that come in, inside, and that go out, through the whole way."""

    def function(x: Any, y: Any) -> Any:
        none = x[:0]
        return (
            *(x @ y, (none.mT @ none).mean(), none.var(0), none.sum(1), none.prod(), y.argsort()),
            *(torch.cat([x, none]), torch.stack([none, none], 1), y.exp() + 1),
        )

    flat = _flat(function)
    x, y = rows(4, 3), rows(3, 0)
    result = collage.optimize(
        program_of(flat, x, y), ["llvm"], strategy="single:tvm", cost_model=_ANY_CPU
    )
    found = result.executable
    assert found is not None
    import tvm

    from collage.bundle.calling.tensors import to_tvm

    machine = tvm.relax.VirtualMachine(found, tvm.cpu())
    given = [to_tvm(value, tvm.cpu()) for value in (x.numpy(), y.numpy())]
    for mine, theirs in zip(machine["main"](*given), flat(x, y), strict=True):
        assert (tuple(mine.shape), str(mine.dtype)) == (
            tuple(theirs.shape),
            str(theirs.dtype).removeprefix("torch."),
        )
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-5)
