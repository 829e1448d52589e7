"""Modules that keep something from call to call, and what tracing leaves out or cannot take."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from collage.backends.contract.errors import ModelError
from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.normalize import normalize
from tests.collage_tests.importers.torch.torch_functions import Function, rows

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
nn = torch.nn

exporting = torch.compiler.is_exporting
"""By a name of its own, by which nobody finds out who asks."""


def _agree(net: Any, draw: Callable[[], tuple[Any, ...]]) -> None:
    net.eval()
    mod = normalize(load_model(net, example_inputs=draw()).mod)
    given = draw()
    with torch.no_grad():
        expected = net(*given)
    found = evaluate(mod, [x.numpy() for x in given])
    np.testing.assert_allclose(found[0], expected.numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("checked", [False, True])
def test_padded_places_of_encoders_are_zero_as_in_inference(norm: bool, checked: bool) -> None:
    torch.manual_seed(7)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    last = nn.LayerNorm(8) if norm else None
    if last is not None:
        nn.init.normal_(last.bias)
    net = nn.TransformerEncoder(layer, 2, norm=last, mask_check=checked)

    class Pooled(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any, away: Any) -> Any:
            return self.net(x, src_key_padding_mask=away)

    def draw() -> tuple[Any, ...]:
        lengths = torch.randint(1, 6, (3, 1))
        lengths[0] = 6
        return rows(3, 6, 8), torch.arange(6)[None] >= lengths

    _agree(Pooled(), draw)
    if checked:
        # Padded in front, nothing is left out.
        _agree(Pooled(), lambda: tuple(x.flip(1) for x in draw()))


@pytest.mark.parametrize("first", [False, True])
def test_encoders_with_masks_of_places_are_taken_apart(first: bool) -> None:
    torch.manual_seed(7)
    layer = nn.TransformerEncoderLayer(
        8, 2, 16, batch_first=True, norm_first=first, activation="gelu" if first else "relu"
    )
    net = nn.TransformerEncoder(layer, 2)
    ahead = nn.Transformer.generate_square_subsequent_mask(6)

    class Causal(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any, away: Any) -> Any:
            return self.net(x, mask=away)

    _agree(Causal(), lambda: (rows(3, 6, 8), ahead))
    _agree(Causal(), lambda: (rows(3, 6, 8), ahead < 0))


class Moving(nn.Module):  # type: ignore[misc,name-defined]
    """Assigns a buffer as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("places", rows(3))

    def forward(self, x: Any) -> Any:
        self.places = self.places.to(x.device)
        return x + self.places


def test_a_buffer_that_is_assigned_as_it_is_is_no_state() -> None:
    _agree(Moving(), lambda: (rows(3),))
    assert load_model(Moving(), example_inputs=(rows(3),)).signature.state == ()  # type: ignore[union-attr]


def test_distributions_do_not_look_at_their_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    # PyTorch itself no longer looks, once it has compiled something.
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)

    def function(x: Any) -> Any:
        return torch.distributions.Normal(x, x.exp()).log_prob(x * 2)

    _agree(Function(function), lambda: (rows(3, 4),))
    assert torch.distributions.Distribution._validate_args


@dataclass
class Scores:
    """Results that PyTorch was not told of."""

    best: Any
    rest: list[Any]
    none: Any = None


def test_data_classes_come_out_as_dicts() -> None:
    net = Function(lambda x: Scores(x + 1, [Scores(x * 2, [])]))
    model = load_model(net, example_inputs=(rows(3),))
    assert [info.name for info in model.outputs] == ["best", "rest.0.best"]
    assert model.signature is not None
    first, second = np.ones(3), np.zeros(3)
    given = model.signature.returned([first, second])
    assert given == {"best": first, "rest": [{"best": second, "rest": []}]}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: {x + 1}, "it gives a set; what goes in and comes out may be tensors"),
        (lambda x: (x, x.dtype), "it gives a dtype; what goes in and comes out may be tensors"),
        (lambda x: x @ x, rf"\[2, 3.*, at {re.escape(__file__)}:[0-9]+$"),
        (
            lambda x: x * (None if exporting() else x)[0],  # type: ignore[index]
            r"'NoneType' .*, at .*:[0-9]+; while a model is traced .*: give them all",
        ),
    ],
)
def test_what_fails_in_a_model_is_told_with_its_place(
    function: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(Function(function), example_inputs=(rows(2, 3),))


def test_moving_a_part_to_where_it_is_does_nothing() -> None:
    layer = nn.Linear(3, 4)

    def function(x: Any) -> Any:
        return layer.to(x.dtype)(x)

    net = Function(function)
    net.layer = layer
    _agree(net, lambda: (rows(2, 3),))


def test_quantizations_that_are_not_done_are_refused() -> None:
    from torch.ao import quantization

    prepared = nn.Sequential(quantization.FakeQuantize(quantization.MovingAverageMinMaxObserver))
    with pytest.raises(ModelError, match="its part '0' is there to train or observe a quantizat"):
        load_model(prepared, example_inputs=(rows(2, 3),))
    net = nn.Sequential(nn.Linear(3, 4)).train()
    net.qconfig = quantization.get_default_qat_qconfig("x86")
    quantization.prepare_qat(net, inplace=True)
    net(rows(2, 3))
    with pytest.raises(ModelError, match=r"fq_helper.*: it is there to train or observe"):
        load_model(net, example_inputs=(rows(2, 3),))


def test_what_draws_only_in_training_is_taken() -> None:
    _agree(nn.Sequential(nn.RReLU(), nn.Dropout(), nn.AlphaDropout()), lambda: (rows(2, 4),))


def test_operators_of_their_own_are_named() -> None:
    library = torch.library.Library("collage_tests", "FRAGMENT")
    library.define("doubled(Tensor x) -> Tensor")
    library.define("filled(Tensor x, Tensor(a!) y) -> ()")
    library.define("composed(Tensor x) -> Tensor")
    library.impl("doubled", torch.empty_like, "Meta")
    library.impl("filled", lambda x, y: None, "Meta")
    library.impl("composed", lambda x: x.sin() + 1, "CompositeImplicitAutograd")
    own = torch.ops.collage_tests

    def filled(x: Any) -> Any:
        found = torch.empty_like(x)
        own.filled(x, found)
        return found

    for name, function in (("doubled", lambda x: own.doubled(x)), ("filled", filled)):
        with pytest.raises(ModelError, match=f"'collage_tests::{name}' is an operator of its own"):
            load_model(Function(function), example_inputs=(rows(3),))
    _agree(Function(lambda x: own.composed(x)), lambda: (rows(3),))


def test_nested_tensors_are_refused() -> None:
    def listed(x: Any) -> Any:
        return torch.nested.nested_tensor([x[0], x[1, :3]], layout=torch.jagged).sum(1)

    def strided(x: Any) -> Any:
        nested = torch.nested.as_nested_tensor([x[0], x[1, :3]])
        return torch.nested.to_padded_tensor(nested, 0.0)

    for function in (listed, strided):
        with pytest.raises(ModelError, match="it makes nested tensors, whose rows data choose"):
            load_model(Function(function), example_inputs=(rows(2, 5, 4),))


def test_what_pytorch_cannot_trace_is_named() -> None:
    def function(x: Any, y: Any) -> Any:
        return x + 1 if torch.equal(x, y) else x

    with pytest.raises(ModelError, match=r"what aten\.equal\.default gives depends on data"):
        load_model(Function(function), example_inputs=(rows(3), rows(3)))


def test_masks_of_transformers_may_come_in() -> None:
    """PyTorch looks whether one leaves out all that comes later; it may, or may not."""
    layer = nn.TransformerDecoderLayer(8, 2, 16)

    class Decoded(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.TransformerDecoder(layer, 2)

        def forward(self, x: Any, memory: Any, mask: Any) -> Any:
            return self.net(x, memory, tgt_mask=mask)

    def draw() -> tuple[Any, ...]:
        later = torch.full((5, 5), -torch.inf).triu(1)
        later[3, 0] = -torch.inf if torch.rand(()) < 0.5 else 0.0
        return rows(5, 2, 8), rows(6, 2, 8), later

    net = Decoded()
    for seed in range(4):
        torch.manual_seed(seed)
        _agree(net, draw)


@pytest.mark.parametrize("traced", [torch.compiler.is_compiling, torch.compiler.is_exporting])
def test_modules_that_compute_something_else_where_they_are_traced(
    traced: Callable[[], bool],
) -> None:
    """As a language model of pictures that makes up a mask, and none where it runs at once."""

    class Asking(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, gap: float) -> None:
            super().__init__()
            self.gap = gap
            self.register_buffer("calls", torch.zeros(1))
            self.seen: list[int] = []

        def forward(self, x: Any) -> Any:
            self.calls += 1
            self.seen.append(1)
            return x * (1 + self.gap) if traced() else x + 0 * self.calls

    inputs = (rows(20),)
    with pytest.raises(ModelError, match=r"result 0 is off by 0\.25 of its size: code of the mod"):
        load_model(Asking(0.25), example_inputs=inputs)
    near = Asking(1e-3)
    load_model(near, example_inputs=inputs)
    assert float(near.calls) == 0.0  # What is compared is a copy.


class Masked(nn.Module):  # type: ignore[misc,name-defined]
    """As models of transformers fill in a mask, but for where they are traced."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.fails = fails

    def forward(self, x: Any, mask: Any = None) -> Any:
        if mask is None and not torch.compiler.is_compiling():
            mask = torch.arange(x.shape[1]).expand(x.shape) < 3
        if mask is None:
            return x * (mask[:, None] if self.fails else 2.0)  # type: ignore[index]
        return torch.where(mask, x, 0.0)


@pytest.mark.parametrize("fails", [True, False])
def test_what_is_made_up_but_where_a_model_is_traced(fails: bool) -> None:
    """It is told that it is not, where it fails otherwise or gives something else."""
    asked = torch.compiler.is_compiling
    _agree(Masked(fails=fails), lambda: (rows(2, 5),))
    assert torch.compiler.is_compiling is asked


def test_what_is_traced_is_held_against_the_module_for_as_long_as_there_is_time() -> None:
    class Slow(nn.Module):  # type: ignore[misc,name-defined]
        seen = 0

        def forward(self, x: Any) -> Any:
            if exporting():
                return x
            for _ in range(100):
                Slow.seen += 1
                time.sleep(0.01)
                x = x + 1
            return x

    load_model(Slow(), example_inputs=(rows(3),), check_sec=0.05)
    assert 0 < Slow.seen < 50
    with pytest.raises(ModelError, match="asks whether it is traced"):
        load_model(Slow(), example_inputs=(rows(3),), check_sec=60.0)


def test_weights_of_bfloat16_whose_elements_lie_in_another_order() -> None:
    net = nn.Conv2d(6, 4, 3).to(torch.bfloat16, memory_format=torch.channels_last).eval()
    x = rows(2, 6, 5, 5).bfloat16()
    mod = normalize(load_model(net, example_inputs=(x,)).mod)
    with torch.no_grad():
        exact = net.double()(x.double()).numpy()
    found = evaluate(mod, [x.float().numpy().astype(ml_dtypes.bfloat16)])[0].astype(np.float64)
    np.testing.assert_allclose(found, exact, rtol=2**-8, atol=1e-2)


def test_what_a_program_runs_as_is_a_module() -> None:
    """What ``convert_pt2e`` gives is one, and cannot be told to evaluate."""
    net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(), torch.nn.ReLU()).eval()
    x = torch.randn(2, 8)
    module = torch.export.export(net, (x,)).module()
    found = evaluate(load_model(module, example_inputs=(x,)).mod, [x.numpy()])
    np.testing.assert_allclose(found[0], net(x).detach().numpy(), rtol=2e-5, atol=2e-5)
