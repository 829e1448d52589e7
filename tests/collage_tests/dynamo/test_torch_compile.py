"""``torch.compile`` with this project behind it, beside eager PyTorch on fresh numbers."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from collage.backends.contract.errors import LogError, UserError
from collage.cost.models.roofline import DeviceSpec, RooflineCostModel
from collage.dynamo import compile_graph
from collage.dynamo.options import Options
from collage.targets import usable_targets
from tests.collage_tests.importers.torch.torch_programs import Counting
from tests.entry_points import with_entry_points

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """No test sees what another one compiled."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    gc.collect()


def compiled(model: Any, log: Path | None = None, **options: Any) -> Any:
    """Without measuring, where no log says otherwise: which partitions win is not asked here."""
    options = {"targets": ["llvm"], "log": log, **options}
    if log is None:
        processor = DeviceSpec("a processor", 1e12, 1e12, 1e12, bytes_per_sec=50e9)
        options["cost_model"] = RooflineCostModel(processor)
    return torch.compile(model, backend=compile_graph, options=options)


def assert_same(got: Any, want: Any) -> None:
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Weights, a buffer, and a branch in Python between two graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(8, 8)
        self.register_buffer("shift", torch.arange(8.0))

    def forward(self, x: Any) -> Any:
        y = torch.nn.functional.gelu(self.dense(x)) + self.shift
        return torch.tanh(y) if x.sum() > 0 else torch.sigmoid(y)


@pytest.fixture
def net() -> Any:
    torch.manual_seed(0)
    return Net().eval()


def test_is_found_by_name_and_leaves_nothing(tmp_path: Path) -> None:
    """In a process of its own, which finds the entry point as one finds that of a package."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    program = """
import torch
options = {"targets": ["llvm"], "strategy": "single:tvm"}
net = torch.compile(torch.nn.Softmax(-1), backend="collage", options=options)
x = torch.randn(3, 5)
with torch.inference_mode():
    torch.testing.assert_close(net(x), torch.softmax(x, -1))
"""
    path = with_entry_points(tmp_path / "packages")
    env = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(scratch)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert not [p for p in scratch.glob("collage-*-scratch/*") if p.is_dir()]


def test_graph_breaks_and_new_shapes(net: Any) -> None:
    fast = compiled(net)
    with torch.inference_mode():
        for shape in ((2, 8), (3, 8), (2, 8)):
            for sign in (1, -1):
                x = torch.rand(shape) * sign
                assert_same(fast(x), net(x))


def test_a_replay_measures_nothing(tmp_path: Path) -> None:
    log, net = tmp_path / "log.jsonl", torch.nn.Softmax(-1)
    with torch.no_grad():
        x = torch.randn(3, 5)
        assert_same(compiled(net, log)(x), net(x))
        before = log.read_bytes()
        for replayed in (
            compiled(net, log, replay=True),
            torch.compile(
                net,
                backend=partial(compile_graph, options={"targets": ["llvm"]}),
                mode=f"replay:{log}",
            ),
        ):
            torch._dynamo.reset()
            x = torch.randn(3, 5)
            assert_same(replayed(x), net(x))
        assert log.read_bytes() == before
        torch._dynamo.reset()
        with pytest.raises(LogError, match="log"):
            compiled(net, log, replay=True)(torch.randn(4, 5))


def test_other_weights_are_seen(net: Any) -> None:
    fast, x = compiled(net), torch.rand(2, 8)
    with torch.no_grad():
        assert_same(fast(x), net(x))
        net.dense.weight.mul_(-2)
        assert_same(fast(x), net(x))
        net.dense.bias.data = torch.ones(8)
        assert_same(fast(x), net(x))
        net.dense = torch.nn.Linear(8, 8)
        assert_same(fast(x), net(x))


def test_weights_of_inference_mode_are_seen() -> None:
    """They count no changes; nor does it matter where other weights were changed."""
    with torch.inference_mode():
        net = torch.nn.Linear(8, 8)
        fast, x = compiled(net), torch.rand(2, 8)
        for _ in range(3):
            assert_same(fast(x), net(x))
            net.weight.mul_(-2)
    net = torch.nn.Linear(8, 8)
    fast = compiled(net)
    with torch.inference_mode():
        for _ in range(2):
            assert_same(fast(x), net(x))
            net.weight.mul_(-2)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_buffers_that_a_call_writes_are_no_weights(
    mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from collage.dynamo import graph

    made: list[Any] = []
    compile_one = graph.Graph._compile
    monkeypatch.setattr(
        graph.Graph, "_compile", lambda self, call: made.append(call) or compile_one(self, call)
    )
    with mode():
        net, same = Counting(), Counting()
        fast = compiled(net)
        for _ in range(4):
            x = torch.rand(3)
            assert_same(fast(x), same(x))
        assert_same(net.calls, same.calls)
    assert len(made) == 1


def test_a_graph_without_inputs_gives_tensors() -> None:
    def function() -> Any:
        return torch.arange(4) + 1, torch.ones(2, dtype=torch.bfloat16).exp()

    fast = compiled(function)
    with torch.no_grad():
        for _ in range(2):
            for got, want in zip(fast(), function(), strict=True):
                torch.testing.assert_close(got, want)
                got.zero_()


def test_numbers_among_the_arguments() -> None:
    """A number that changes is taken as a tensor, and converted in the graph."""

    def function(x: Any, k: Any) -> Any:
        y = x * k
        torch._dynamo.graph_break()
        return y.sum(), {"more": y + 1, "nothing": None, "k": k}

    fast = compiled(function)
    x = torch.randn(2, 4)
    with torch.no_grad():
        for k in (2.5, -1.25, 3, 7, True):
            assert_same(fast(x, k), function(x, k))


def test_first_calls_from_several_threads() -> None:
    net = torch.nn.Linear(4, 4).requires_grad_(False)
    fast = compiled(lambda x: net(x).relu_())

    def calls(rows: int) -> None:
        with torch.no_grad():
            for _ in range(3):
                x = torch.randn(rows, 4)
                assert_same(fast(x), net(x).relu())

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(calls, rows) for rows in range(1, 4)]:
            done.result(timeout=300)


def test_gradients_are_refused(net: Any) -> None:
    x = torch.randn(2, 8)
    with pytest.raises(Exception, match=r"only inference is compiled: .*torch\.no_grad\(\)"):
        compiled(net)(x)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="only inference is compiled"):
        compiled(torch.nn.ReLU())(x.requires_grad_())


def test_what_norms_do_in_training_is_refused_as_who_calls_would_mend_it() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4))
    with torch.no_grad():
        with pytest.raises(Exception, match=r"model\.eval\(\) before .*where torch\.compile comp"):
            compiled(net)(torch.randn(2, 8))
        torch._dynamo.reset()
        assert_same(compiled(net.eval())(x := torch.randn(2, 8)), net(x))


def test_results_are_tensors_of_their_own() -> None:
    """What is written into a result is nowhere else; what a function writes into is written."""

    def function(x: Any, ids: Any) -> Any:
        y = x * 2
        x.add_(1)
        return y, x, ids > 0, x.clone(), y.sum(), ids[1:] + 1, None, 5

    fast = compiled(function)
    for x in (torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(31)[7:].view(4, 6)):
        ids = torch.randint(-3, 3, (5,))
        ours, theirs = x.clone(), x.clone()
        with torch.no_grad():
            got, want = fast(ours, ids), function(theirs, ids)
        assert_same(got[:6], want[:6])
        assert got[6:] == want[6:]
        assert got[1] is ours
        assert_same(ours, theirs)
        got[0].zero_()
        got[3].zero_()
        assert_same(ours, theirs)


def test_no_more_is_kept_than_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from collage.dynamo import graph

    made: list[Any] = []
    remember = graph.Graph.__init__

    def init(self: Any, *args: Any) -> None:
        made.append(self)
        remember(self, *args)

    monkeypatch.setattr(graph, "_MOST_KEPT", 2)
    monkeypatch.setattr(graph.Graph, "__init__", init)
    fast = compiled(lambda x: x * 2 + 1)
    with torch.no_grad():
        for size in (3, 4, 5, 3):
            x = torch.randn(size)
            torch._dynamo.mark_dynamic(x, 0)
            assert_same(fast(x), x * 2 + 1)
    (one,) = made
    folder = one._folder.path
    assert len(one._compiled) == 2
    assert len([path for path in folder.iterdir() if path.is_dir()]) == 2
    made.clear()
    del one, fast
    torch._dynamo.reset()
    gc.collect()
    assert not folder.exists()


def test_operators_are_pinned_and_banned(monkeypatch: pytest.MonkeyPatch) -> None:
    """In those graphs that have them; what is in none of them is said."""
    from collage.dynamo import graph

    reports: list[Any] = []
    optimize = graph.optimize

    def seen(*args: Any, **options: Any) -> Any:
        result = optimize(*args, **options)
        reports.append(result.report)
        return result

    def function(x: Any) -> Any:
        y = torch.softmax(x, -1)
        torch._dynamo.graph_break()
        return torch.sigmoid(y)

    monkeypatch.setattr(graph, "optimize", seen)
    restricted = {"pin": {"nn.softmax": "tvm"}, "ban": {"sigmoid": ["onednn"]}}
    fast = compiled(function, targets=["llvm", "onednn"], **restricted)
    x = torch.randn(3, 5)
    with torch.no_grad(), pytest.warns(UserWarning, match="'nn.softmax' matches no operator"):
        assert_same(fast(x), function(x))
    remarks = [line for report in reports for line in report.remarks if "1 operator" in line]
    assert [line.split(" (")[0] for line in remarks] == [
        "pinned nn.softmax to tvm",
        "banned sigmoid from onednn",
    ]


def test_options_are_checked() -> None:
    with pytest.raises(UserError, match=r"unknown option .target. for torch\.compile; known: tar"):
        Options.of(None, {"target": "llvm"})
    with pytest.raises(UserError, match="unknown mode 'max-autotune'"):
        Options.of("max-autotune", None)
    with pytest.raises(LogError, match="a replay needs"):
        Options.of("replay", {})
    assert Options.of("replay:x", {}) == Options(log="x", replay=True)
    assert Options.of("search:x", {}) == Options.of(None, {"log": "x"})


def test_targets_are_by_default_what_is_usable_here() -> None:
    found = Options.of(None, None).for_optimize("cpu")["targets"]
    assert found == usable_targets("cpu") and found[0] == "llvm"
    with pytest.raises(UserError, match="tensors are on 'cuda', and the targets are for 'cpu'"):
        Options.of(None, {"targets": ["llvm"]}).for_optimize("cuda")
