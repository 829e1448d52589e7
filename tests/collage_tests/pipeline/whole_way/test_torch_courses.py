"""PyTorch's control flow from a module and a file to a bundle, and behind ``torch.compile``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import collage
from collage.importers import load_model
from tests.collage_tests.importers.onnx.onnx_models import along_course, require_same
from tests.collage_tests.pipeline.flat_costs import FlatCosts

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
control = pytest.importorskip("torch._higher_order_ops", exc_type=ImportError)


class Thinking(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Rounds until it is sure, or has no time left, and one of two ways to answer."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.answer = torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)

    def forward(self, state: Any, most: Any) -> Any:
        rounds, last = control.while_loop(
            lambda i, h: torch.logical_and(i < most, h.abs().max() < 4),
            lambda i, h: (i + 1, h + torch.tanh(self.step(h))),
            (torch.zeros((), dtype=torch.int64), state),
        )
        scores = torch.cond(
            last.mean() > 0, lambda h: self.answer(h), lambda h: self.answer(-h).exp(), (last,)
        )
        return {"scores": scores, "rounds": rounds}


def test_a_module_and_its_file(tmp_path: Path) -> None:
    torch.manual_seed(3)
    net = Thinking().eval()
    example = (torch.randn(2, 8), torch.tensor(4))
    torch.export.save(torch.export.export(net, example, strict=True), tmp_path / "net.pt2")
    from_file = load_model(tmp_path / "net.pt2")
    result = collage.optimize(net, ["llvm"], cost_model=FlatCosts("tvm"), example_inputs=example)
    assert {name.split("_")[0] for name in result.functions} >= {"body", "then", "else"}
    bundle = collage.load(result.export(tmp_path / "bundle"))
    seen = set()
    for most in (0, 1, 30):
        given = (torch.randn(2, 8), torch.tensor(most))
        found, wanted = bundle(*given), net(*given)
        assert list(found) == ["scores", "rounds"]
        theirs = [one.detach().numpy() for one in wanted.values()]
        assert from_file.course is not None
        names = [info.name for info in from_file.course.inputs]
        arrays = {name: x.numpy() for name, x in zip(names, given, strict=True)}
        for mine in ([one.numpy() for one in found.values()], along_course(from_file, arrays)):
            require_same(mine, theirs)
        seen.add(int(found["rounds"]))
    assert len(seen) == 3


@pytest.mark.slow
def test_behind_torch_compile() -> None:
    torch.manual_seed(3)
    net = Thinking().eval()
    fast = torch.compile(
        net, backend="collage", options={"targets": ["llvm"], "cost_model": FlatCosts("tvm")}
    )
    with torch.inference_mode():
        for most in (0, 7):
            state = torch.randn(2, 8)
            found, wanted = fast(state, torch.tensor(most)), net(state, torch.tensor(most))
            assert int(found["rounds"]) == int(wanted["rounds"])
            torch.testing.assert_close(found["scores"], wanted["scores"], rtol=1e-4, atol=1e-4)
