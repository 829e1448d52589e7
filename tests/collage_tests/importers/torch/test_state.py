"""Modules that change tensors in place and compute with what they find there in the next call."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collage.backends.contract.errors import ModelError
from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.normalize import normalize
from tests.collage_tests.importers.torch.torch_functions import rows

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
nn = torch.nn


class Changing(nn.Module):  # type: ignore[misc,name-defined]
    """Runs a function on itself and its inputs, with buffers of some names and a few layers."""

    def __init__(self, function: Callable[..., Any], /, **buffers: Any) -> None:
        super().__init__()
        self.function = function
        for name, held in buffers.items():
            self.register_buffer(name, held, persistent=name != "place")
        torch.manual_seed(5)
        self.linear = nn.Linear(4, 12)
        self.cell = nn.GRUCell(4, 4)
        self.convolution = nn.Conv1d(3, 4, 3)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def _with_cache(net: Any, x: Any) -> Any:
    query, key, value = net.linear(x).chunk(3, -1)
    net.keys.index_copy_(1, net.place, key)
    net.values.index_copy_(1, net.place, value)
    here = (torch.arange(6) <= net.place)[None, None]
    found = nn.functional.scaled_dot_product_attention(query, net.keys, net.values, here)
    net.place += 1
    return found


def _with_slices(net: Any, x: Any, place: Any) -> Any:
    net.keys[:, place] = x
    return net.keys.cumsum(1)


def _streaming(net: Any, x: Any) -> Any:
    x = torch.cat([net.left, x], 2)
    net.left.copy_(x[:, :, -2:])
    return net.convolution(x)


def _assigning(net: Any, x: Any) -> Any:
    x = torch.cat([net.left, x], 2)
    net.left = x[:, :, -2:]
    return net.convolution(x)


def _averaging(net: Any, x: Any) -> Any:
    net.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
    net.variance.lerp_(x.var(0), 0.1)
    return (x - net.mean) / net.variance.sqrt()


def _recurrent(net: Any, x: Any) -> Any:
    net.hidden.copy_(net.cell(x, net.hidden))
    return {"out": net.hidden * 2}


def _remembering(net: Any, x: Any) -> Any:
    net.queue[net.place] = x
    net.place.add_(1).remainder_(4)
    return net.queue @ net.queue.T


def _turning(net: Any, x: Any) -> Any:
    net.factor.mul_(torch.polar(torch.ones(4), x))
    return torch.view_as_real(net.factor * 2)


def _through_views(net: Any, x: Any) -> Any:
    net.pair[0].add_(x)
    net.pair[1].mul_(2).sub_(x)
    return net.pair.sum(0)


def _largest(net: Any, x: Any) -> Any:
    net.most.copy_(torch.maximum(net.most, x))
    return net.most - 1


def _giving_itself(net: Any, calls: Any) -> Any:
    net.calls += 1
    return {"calls": calls * net.calls}


def _exchanging(net: Any, x: Any) -> Any:
    first = net.first.clone()
    net.first.copy_(net.second)
    net.second.copy_(first + x)
    return net.first - net.second


def _delaying(net: Any, x: Any) -> Any:
    before = net.last
    net.last = x
    return before


def _into(net: Any, x: Any) -> Any:
    torch.add(net.last, x, out=net.last)
    return net.last * 2


_CACHE = {"keys": torch.zeros(1, 6, 4), "values": torch.zeros(1, 6, 4)}
_PLACE = torch.zeros(1, dtype=torch.int64)
CASES: dict[str, tuple[Callable[..., Any], dict[str, Any], Callable[[int], tuple[Any, ...]]]] = {
    "cache": (_with_cache, {**_CACHE, "place": _PLACE}, lambda _: (rows(1, 1, 4),)),
    "slices": (_with_slices, _CACHE, lambda i: (rows(1, 1, 4), torch.tensor([i]))),
    "stream": (_streaming, {"left": torch.zeros(2, 3, 2)}, lambda _: (rows(2, 3, 5),)),
    "assigned": (_assigning, {"left": torch.zeros(2, 3, 2)}, lambda _: (rows(2, 3, 5),)),
    "average": (_averaging, {"mean": rows(4), "variance": torch.ones(4)}, lambda _: (rows(6, 4),)),
    "recurrent": (_recurrent, {"hidden": torch.zeros(2, 4)}, lambda _: (rows(2, 4),)),
    "queue": (_remembering, {"queue": rows(4, 3), "place": _PLACE}, lambda _: (rows(1, 3),)),
    "complex": (_turning, {"factor": torch.ones(4, dtype=torch.complex64)}, lambda _: (rows(4),)),
    "views": (_through_views, {"pair": torch.zeros(2, 4)}, lambda _: (rows(4),)),
    "infinite": (_largest, {"most": torch.full((4,), -torch.inf)}, lambda _: (rows(4),)),
    "exchange": (_exchanging, {"first": rows(4), "second": rows(4)}, lambda _: (rows(4),)),
    "delay": (_delaying, {"last": torch.zeros(4)}, lambda _: (rows(4),)),
    "out": (_into, {"last": torch.zeros(4)}, lambda _: (rows(4),)),
    "named": (_giving_itself, {"calls": torch.zeros(())}, lambda _: (rows(4),)),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_kept_goes_in_and_comes_out(case: str) -> None:
    function, buffers, draw = CASES[case]
    net = Changing(function, **copy.deepcopy(buffers)).eval()
    same = copy.deepcopy(net)
    model = load_model(net, example_inputs=draw(0))
    assert all(torch.equal(net.get_buffer(name), held) for name, held in buffers.items())
    assert model.signature is not None
    state = model.signature.state
    assert len({info.name for info in model.inputs}) == len(model.inputs)
    mod = normalize(model.mod)
    held = [kept.initial(model.inputs[kept.input]) for kept in state]
    assert held
    for call in range(3):
        given = draw(call)
        found = evaluate(mod, [*(x.numpy() for x in given), *held])
        with torch.no_grad():
            expected = same(*given)
        first = next(iter(expected.values())) if isinstance(expected, dict) else expected
        np.testing.assert_allclose(found[0], first.numpy(), rtol=2e-5, atol=2e-5)
        held = [found[kept.output] for kept in state]


def test_names_are_the_buffers_and_differ_from_others() -> None:
    net = Changing(_giving_itself, calls=torch.zeros(()))
    model = load_model(torch.export.export(net, (rows(4),)))
    assert [info.name for info in model.inputs] == ["args_0", "calls_state"]
    assert [info.name for info in model.outputs] == ["calls", "calls_state"]


def test_what_no_result_depends_on_is_not_kept() -> None:
    def counting(net: Any, x: Any) -> Any:
        net.calls += 1
        return x * 2

    model = load_model(Changing(counting, calls=torch.zeros(())), example_inputs=(rows(4),))
    assert len(model.inputs) == len(model.outputs) == 1


def test_a_parameter_may_be_what_is_kept() -> None:
    net = Changing(lambda net, x: net.cell.bias_ih.data.add_(0) if x is None else _adapted(net, x))
    model = load_model(net, example_inputs=(rows(12),))
    assert [info.name for info in model.inputs] == ["args_0", "cell.bias_ih"]


def _adapted(net: Any, x: Any) -> Any:
    with torch.no_grad():
        net.cell.bias_ih.add_(x)
    return net.cell.bias_ih * 2


class Attribute(nn.Module):  # type: ignore[misc,name-defined]
    """Keeps something in an attribute that is no buffer."""

    def __init__(self, held: Any, function: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.held = held
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def _replaced(net: Any, x: Any) -> Any:
    found = x + net.held
    net.held = x
    return found


def _written(net: Any, x: Any) -> Any:
    net.held.add_(x)
    return net.held * 2


@pytest.mark.parametrize("function", [_replaced, _written])
def test_tensors_in_attributes_are_kept_too(function: Callable[[Any, Any], Any]) -> None:
    held = torch.zeros(3)
    net = Attribute(held, function)
    model = load_model(net, example_inputs=(rows(3),))
    assert [info.name for info in model.inputs][-1] == "held"
    assert net.held is held
    assert not list(net.buffers())
    assert not held.any()


def _counted(net: Any, x: Any) -> Any:
    net.held += 1
    return x * net.held


def _made(net: Any, x: Any) -> Any:
    net.held = x if net.held is None else net.held + x
    return net.held * 2


def _listed(net: Any, x: Any) -> Any:
    net.held.append(x)
    return torch.stack(list(net.held)).sum(0)


def _by_key(net: Any, x: Any) -> Any:
    net.held["last"] = net.held["last"] + x
    return net.held["last"] * 2


@pytest.mark.parametrize(
    ("held", "function"),
    [(0, _counted), (None, _made), ([], _listed), ({"last": torch.zeros(3)}, _by_key)],
)
def test_other_attributes_that_calls_change_are_warned_of(
    held: Any, function: Callable[[Any, Any], Any]
) -> None:
    net, before = Attribute(held, function), str(held)
    with pytest.warns(UserWarning, match="changes its attribute 'held' and a second call gives"):
        load_model(net, example_inputs=(rows(3),))
    assert str(net.held) == before


def test_attributes_that_change_no_result_are_not_warned_of() -> None:
    def noted(net: Any, x: Any) -> Any:
        net.held, net.shape = net.held + 1, tuple(x.shape)
        net.mask = torch.ones(x.shape[-1]).cumsum(0)
        return x * net.mask

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        load_model(Attribute(0, noted), example_inputs=(rows(3),))


class _Cache:
    """As caches of transformers hold what a module has registered."""

    def __init__(self, keys: Any) -> None:
        self.keys = keys


def test_buffers_that_another_object_holds_are_kept() -> None:
    def function(net: Any, x: Any) -> Any:
        net.cache.keys[:, 1:] = net.cache.keys[:, :-1].clone()
        net.cache.keys[:, 0] = x
        return net.cache.keys.sum(1)

    net = Changing(function, keys=torch.zeros(2, 4, 3))
    net.cache = _Cache(net.keys)
    model = load_model(net, example_inputs=(rows(2, 3),))
    assert [info.name for info in model.inputs][-1] == "keys"
    mod, held, given = normalize(model.mod), np.zeros((2, 4, 3), np.float32), []
    for _ in range(3):
        given.append(rows(2, 3).numpy())
        found, held = evaluate(mod, [given[-1], held])
        np.testing.assert_allclose(found, np.sum(given, 0), rtol=1e-5, atol=1e-6)


GLOBAL = torch.zeros(3)


def _grown(net: Any, x: Any) -> Any:
    net.keys = torch.cat([net.keys, x])
    return net.keys.sum(0)


def _widened(net: Any, x: Any) -> Any:
    net.keys = (net.keys + x).double()
    return net.keys * 2


def _late(net: Any, x: Any) -> Any:
    net.keys = x if net.keys is None else net.keys + x
    return net.keys * 2


REFUSED: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "grown": (_grown, torch.zeros(1, 3), r"makes float32\[2, 3\] of its buffer 'keys', which is"),
    "widened": (_widened, torch.zeros(1, 3), r"makes float64\[1, 3\] of its buffer 'keys'"),
    "late": (_late, None, "buffer 'keys' is None until a first call makes it"),
    "global": (
        lambda _, x: GLOBAL.add_(x[0]) * 2,
        torch.zeros(1),
        "it writes into a tensor that is none of its",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_kept_is_refused(case: str) -> None:
    function, held, message = REFUSED[case]
    net = Changing(function, keys=held)
    with pytest.raises(ModelError, match=message):
        load_model(net, example_inputs=(rows(1, 3),))
    assert net.keys is held
