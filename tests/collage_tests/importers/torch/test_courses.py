"""PyTorch's control flow, written out or cut into parts: beside PyTorch, on fresh inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collage.backends.contract.errors import ModelError
from collage.cost.reference import evaluate
from collage.importers import ImportedModel, load_model
from collage.normalize import normalize
from tests.collage_tests.importers.onnx.onnx_models import along_course
from tests.collage_tests.importers.torch.torch_functions import rows

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
control = pytest.importorskip("torch._higher_order_ops")
pytree = torch.utils._pytree


class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A function of a dense layer and inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(8, 8)
        self.function = function

    def forward(self, *given: Any) -> Any:
        return self.function(self.dense, *given)


def few() -> Any:
    return torch.randint(0, 6, ())


def up_to(n: Any, dense: Any, x: Any) -> Any:
    return control.while_loop(
        lambda i, h: i < n, lambda i, h: (i + 1, torch.tanh(dense(h))), (torch.tensor(0), x)
    )


def swinging(dense: Any, x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda x: dense(x).relu(), lambda x: x.sin(), (x,))


Case = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]

IN_PARTS: dict[str, Case] = {
    "rounds that an input counts": (
        lambda dense, x, n: {"both": up_to(n, dense, x), "x": [x + 1]},
        lambda: (rows(4, 8), few()),
    ),
    "until data are large": (
        lambda dense, x: control.while_loop(
            lambda h, k: h.abs().max() < 30,
            lambda h, k: (dense(h) * 2 + 1.5, k + 1),
            (x, torch.tensor(0)),
        ),
        lambda: (rows(4, 8),),
    ),
    "a counter of Python's": (
        lambda dense, x: control.while_loop(
            lambda i, h: h.sum() < 50, lambda i, h: (i + 2, h.abs() * 1.5 + i), (0, x)
        ),
        lambda: (rows(4, 8),),
    ),
    "products in one branch": (lambda dense, x: swinging(dense, x) + 1, lambda: (rows(4, 8),)),
    "a branch by a number in a tensor": (
        lambda dense, x, n: torch.cond(n.item() > 2, dense, lambda x: x * 2, (x,)),
        lambda: (rows(4, 8), few()),
    ),
    "branches in rounds": (
        lambda dense, x, n: control.while_loop(
            lambda i, h: i < n,
            lambda i, h: (i + 1, swinging(dense, h)),
            (torch.tensor(0), x),
        )[1],
        lambda: (rows(4, 8), few()),
    ),
    "rounds in rounds, with tensors of their own": (
        lambda dense, x, n: control.while_loop(
            lambda i, h: i < n,
            lambda i, h: (i + 1, up_to(i, dense, h * torch.tensor([0.5, 2.0] * 4))[1]),
            (torch.tensor(0), x),
        )[1],
        lambda: (rows(4, 8), few()),
    ),
    "a state that is a weight": (
        lambda dense, x, n: control.while_loop(
            lambda i, h: i < n, lambda i, h: (i + 1, h + x), (torch.tensor(0), dense.weight)
        )[1],
        lambda: (rows(8, 8), few()),
    ),
    "many rows": (
        lambda dense, x, start: control.scan(
            lambda h, row: (torch.tanh(dense(h) + row), (h * row).sum(-1)), start, x, dim=0
        ),
        lambda: (rows(12, 2, 8), rows(2, 8)),
    ),
}

WRITTEN_OUT: dict[str, Case] = {
    "rounds that are known": (
        lambda dense, x: up_to(5, dense, x)[1],
        lambda: (rows(4, 8),),
    ),
    "cheap branches": (
        lambda dense, x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)),
        lambda: (rows(4, 8),),
    ),
    "nothing among results": (
        lambda dense, x: {
            "one": torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)),
            "hidden": (None, None, dense(x)),
        },
        lambda: (rows(4, 8),),
    ),
    "few rows, backwards": (
        lambda dense, x, start: control.scan(
            lambda s, row: (
                {"a": torch.tanh(s["a"] + row), "b": s["b"] + 1},
                (s["a"] + row).sum(),
            ),
            {"a": start, "b": torch.zeros(3)},
            x,
            dim=1,
            reverse=True,
        ),
        lambda: (rows(4, 5, 8), rows(4, 8)),
    ),
    "prefixes": (
        lambda dense, x: control.associative_scan(
            lambda a, b: a * b + a, x, dim=0, combine_mode="generic"
        ),
        lambda: (rows(5, 4),),
    ),
    "every row": (
        lambda dense, x: control.map(lambda row: (row.sum(), dense(row) * 2), x),
        lambda: (rows(5, 4, 8),),
    ),
    "a number in a tensor": (
        lambda dense, x, n: (x * x.sum().item(), n.item() + 1),
        lambda: (rows(4, 8), few()),
    ),
    "arithmetic of numbers": (
        lambda dense, x, n: _arithmetic(x, n.item()),
        lambda: (rows(4), few()),
    ),
}


def _arithmetic(x: Any, n: Any) -> tuple[Any, ...]:
    chosen = torch.sym_ite(n > 3, n // 2, n % 3)
    rounded = math.ceil(n / 4) + math.floor(n / 4)
    return x * chosen, x + abs(n - 9) // 4, x * torch.sym_sum([n, n % 3, 4]), x + n**2, x * rounded


def loaded(function: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[Any, ImportedModel]:
    torch._dynamo.reset()
    net = Net(function).eval()
    return net, load_model(torch.export.export(net, inputs, strict=False))


def require_agreement(found: list[Any], wanted: Any) -> None:
    leaves = [one for one in pytree.tree_leaves(wanted) if one is not None]
    expected = [torch.as_tensor(one).detach().numpy() for one in leaves]
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("what", IN_PARTS)
def test_what_data_choose_is_cut(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collage.importers.torch.courses.written._MOST_UNROLLED", 30)
    function, draw = IN_PARTS[what]
    net, model = loaded(function, draw())
    assert model.course is not None
    names = [info.name for info in model.course.inputs]
    for _ in range(2):
        inputs = draw()
        given = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
        require_agreement(along_course(model, given), net(*inputs))


@pytest.mark.parametrize("what", WRITTEN_OUT)
def test_what_is_known_or_cheap_is_a_straight_line(what: str) -> None:
    function, draw = WRITTEN_OUT[what]
    net, model = loaded(function, draw())
    assert model.course is None
    for _ in range(2):
        inputs = draw()
        found = evaluate(normalize(model.mod), [x.numpy() for x in inputs])
        require_agreement([np.asarray(one) for one in found], net(*inputs))


def test_a_number_where_a_size_is_wanted_is_refused() -> None:
    def function(dense: Any, x: Any, n: Any) -> Any:
        count = n.item()
        torch._check(count >= 0)
        torch._check(count < 9)
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), torch.zeros(count)

    with pytest.raises(ModelError, match="depends on data"):
        loaded(function, (rows(4, 8), few()))


def test_a_slice_up_to_a_number_is_refused() -> None:
    def function(_dense: Any, x: Any, n: Any) -> Any:
        return x[: n.item()].sum(0)

    with pytest.raises(ModelError, match=r"slice.*is given a number that depends on data"):
        loaded(function, (rows(4, 8), few()))


def test_inputs_may_have_names_of_functions() -> None:
    class Named(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, input: Any, max: Any) -> Any:
            return input[max.argmax()] + max.sum()

    torch.manual_seed(7)
    given = rows(5, 3), rows(5)
    model = load_model(Named().eval(), example_inputs=given)
    assert [one.name for one in model.inputs] == ["input", "max"]
    fresh = rows(5, 3), rows(5)
    found = evaluate(normalize(model.mod), [x.numpy() for x in fresh])
    np.testing.assert_allclose(found[0], Named()(*fresh).numpy(), rtol=1e-6)


def test_numbers_are_read_from_rows_that_numbers_chose() -> None:
    """As the best path through a table of scores is followed back."""

    def best_path(dense: Any, scores: Any, steps: Any) -> Any:
        total, back = scores[0], []
        for row in scores[1:]:
            total, which = (total[:, None] + steps).max(0)
            total = total + row
            back.append(which)
        path = [total.argmax()]
        for which in reversed(back):
            path.append(which[path[-1]])
        return torch.stack(path[::-1])

    torch.manual_seed(7)
    net = Net(best_path).eval()
    model = load_model(net, example_inputs=(rows(6, 4), rows(4, 4)))
    for _ in range(3):
        fresh = rows(6, 4), rows(4, 4)
        found = evaluate(normalize(model.mod), [x.numpy() for x in fresh])
        assert (found[0] == net(*fresh).numpy()).all()
