"""Modules that pack sequences, which end where data say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collage
from collage.backends.contract.errors import ModelError
from collage.cost.models import DeviceSpec, RooflineCostModel
from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.normalize import normalize
from tests.collage_tests.importers.torch.torch_functions import rows

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:packed sequences come back with:UserWarning"),
]
torch = pytest.importorskip("torch", exc_type=ImportError)
nn, rnn = torch.nn, torch.nn.utils.rnn

_ANY_CPU = RooflineCostModel(DeviceSpec("a processor", 1e11, 1e11, 1e11, bytes_per_sec=1e10))


class Packing(nn.Module):  # type: ignore[misc,name-defined]
    """Layers between packing and padding."""

    def __init__(self, layer: Any, function: Callable[..., Any]) -> None:
        super().__init__()
        self.layer, self.function = layer, function
        self.dense, self.table = nn.Linear(5, 5), nn.Embedding(11, 5)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def _lengths(batch: int, steps: int) -> Any:
    found = torch.randint(1, steps + 1, (batch,))
    found[torch.randint(0, batch, ())] = steps
    return found


def _all(net: Any, x: Any, lengths: Any) -> Any:
    packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    found, last = net.layer(packed)
    last = last if isinstance(last, tuple) else (last,)
    return (*rnn.pad_packed_sequence(found, batch_first=True), *last)


def _steps_first(net: Any, x: Any, lengths: Any) -> Any:
    order = lengths.sort(descending=True)[0]
    packed = rnn.pack_padded_sequence(x.transpose(0, 1), order)
    found, _ = net.layer(packed)
    return rnn.pad_packed_sequence(found, padding_value=-2.5, total_length=9)[0]


def _with_states(net: Any, x: Any, lengths: Any) -> Any:
    packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    start = x[:, 0, :1].repeat(2, 1, 6).contiguous()
    narrow = start[:, :, : net.layer.proj_size or 6].contiguous()
    found, last = net.layer(packed, (narrow, start + 1))
    return rnn.pad_packed_sequence(found, batch_first=True)[0], *last


def _row_by_row(net: Any, x: Any, lengths: Any) -> Any:
    packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    data = nn.functional.dropout(torch.tanh(net.dense(packed.data)), training=net.training)
    packed = rnn.PackedSequence(
        data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
    )
    return rnn.pad_packed_sequence(net.layer(packed)[0], batch_first=True)[0]


def _known_lengths(net: Any, x: Any, _lengths: Any) -> Any:
    packed = rnn.pack_sequence([x[0], x[1, :2], x[2, :5]], enforce_sorted=False)
    return rnn.pad_packed_sequence(net.layer(packed)[0])[0]


def _one_step(net: Any, x: Any, lengths: Any) -> Any:
    return _all(net, x[:, :1], lengths.clamp(max=1))


CASES = {
    "LSTM": (lambda: nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True), _all),
    "GRU": (lambda: nn.GRU(5, 6, 2, bidirectional=True), _all),
    "RNN": (lambda: nn.RNN(5, 6, bias=False), _all),
    "RNN of relu": (lambda: nn.RNN(5, 6, nonlinearity="relu"), _all),
    "steps first": (lambda: nn.LSTM(5, 6), _steps_first),
    "states": (lambda: nn.LSTM(5, 6, bidirectional=True), _with_states),
    "projections": (lambda: nn.LSTM(5, 6, 2, bidirectional=True, proj_size=3), _all),
    "projected states": (lambda: nn.LSTM(5, 6, bidirectional=True, proj_size=3), _with_states),
    "row by row": (lambda: nn.GRU(5, 6), _row_by_row),
    "known lengths": (lambda: nn.GRU(5, 6), _known_lengths),
    "one step": (lambda: nn.LSTM(5, 6, bidirectional=True), _one_step),
}


def _agree(found: Any, expected: Any) -> None:
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine.shape, mine.dtype) == (tuple(theirs.shape), theirs.numpy().dtype)
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("case", CASES)
def test_packed_sequences(case: str) -> None:
    torch.manual_seed(7)
    make, function = CASES[case]
    net = Packing(make(), function).eval()
    mod = normalize(load_model(net, example_inputs=(rows(3, 7, 5), _lengths(3, 7))).mod)
    for _ in range(3):
        given = (rows(3, 7, 5), _lengths(3, 7))
        with torch.no_grad():
            expected = net(*given)
        _agree(evaluate(mod, [x.numpy() for x in given][: len(mod["main"].params)]), expected)


def test_words_are_looked_up_after_packing() -> None:
    def function(net: Any, ids: Any, lengths: Any) -> Any:
        packed = rnn.pack_padded_sequence(ids, lengths, batch_first=True, enforce_sorted=False)
        looked_up = packed._replace(data=net.table(packed.data))
        return net.layer(looked_up)[1]

    net = Packing(nn.GRU(5, 6), function).eval()
    given = (torch.randint(0, 11, (3, 7)), _lengths(3, 7))
    mod = normalize(load_model(net, example_inputs=given).mod)
    with torch.no_grad():
        _agree(evaluate(mod, [x.numpy() for x in given]), net(*given))


def test_all_steps_come_back_and_that_is_said() -> None:
    net = Packing(nn.GRU(5, 6, batch_first=True), _all).eval()
    given = (rows(2, 7, 5), torch.tensor([3, 4]))
    with pytest.warns(UserWarning, match="packed sequences come back with 7 steps"):
        loaded = load_model(net, example_inputs=given)
    found = evaluate(normalize(loaded.mod), [x.numpy() for x in given])
    with torch.no_grad():
        output, lengths, last = net(*given)
    assert not found[0][:, 4:].any()
    _agree([found[0][:, :4], *found[1:]], (output, lengths, last))


def test_what_the_number_of_rows_decides_is_refused() -> None:
    def mean(net: Any, x: Any, lengths: Any) -> Any:
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        return net.layer(packed)[0].data.mean(0)

    def total(net: Any, x: Any, lengths: Any) -> Any:
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        return torch.sum(net.layer(packed)[0].data)

    for function in (mean, total):
        with pytest.raises(ModelError, match="of a packed sequence's data cannot be compiled"):
            load_model(
                Packing(nn.GRU(5, 6), function), example_inputs=(rows(7, 3, 5), _lengths(3, 7))
            )
    packed = rnn.pack_padded_sequence(rows(7, 3, 5), torch.tensor([7, 4, 2]))
    with pytest.raises(ModelError, match="let it take the padded tensor and the lengths"):
        load_model(nn.GRU(5, 6), example_inputs=(packed,))
    # PyTorch packs as before.
    assert rnn.pack_padded_sequence(rows(7, 3, 5), torch.tensor([7, 4, 2])).data.shape == (13, 5)


def test_the_whole_way(tmp_path: Path) -> None:
    torch.manual_seed(7)
    net = Packing(nn.LSTM(5, 6, bidirectional=True, batch_first=True), _all).eval()
    result = collage.optimize(
        *(net, ["llvm"]),
        example_inputs=(rows(3, 7, 5), _lengths(3, 7)),
        strategy="single:tvm",
        cost_model=_ANY_CPU,
    )
    bundle = collage.load(result.export(tmp_path / "net.bundle"))
    given = (rows(3, 7, 5), _lengths(3, 7))
    with torch.no_grad():
        _agree([x.numpy() for x in bundle(*given)], net(*given))
