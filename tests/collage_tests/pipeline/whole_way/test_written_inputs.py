"""PyTorch modules that write into their inputs: a bundle's calls do, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collage
from collage.backends.contract.errors import InputError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


def test_what_writes_into_its_input_does_that_in_what_is_given(tmp_path: Path) -> None:
    """An activation in place at the very beginning is no reason to have no answer."""
    module = torch.nn.Sequential(torch.nn.ReLU(inplace=True), torch.nn.Linear(5, 3)).eval()
    x = torch.randn(4, 5)
    result = collage.optimize(module, ["llvm"], example_inputs=(x.clone(),), time_budget_sec=0)
    assert any("writes into 'input'" in remark for remark in result.report.remarks)
    bundle = collage.load(result.export(tmp_path / "bundle"))
    given = x.clone()
    found = bundle(given)
    assert torch.equal(given, x.relu())
    with torch.no_grad():
        torch.testing.assert_close(found, module(x.clone()), rtol=1e-4, atol=1e-5)


class _Caches(torch.nn.Module):
    """A layer whose keys and values are inputs that it writes into."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(4, 12)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any, caches: dict[str, list[Any]], at: Any) -> Any:
        query, key, value = self.dense(x).chunk(3, -1)
        self.calls += 1
        for each, new in zip((caches["keys"], caches["values"]), (key, value), strict=True):
            each[0].index_copy_(1, at, new)
        keys, values = caches["keys"][0], caches["values"][0]
        seen = torch.softmax(query @ keys.transpose(1, 2), -1) @ values
        return {"seen": seen * self.calls, "norm": keys.norm()}


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_caches_that_are_inputs_come_back_changed(tmp_path: Path, kind: str) -> None:
    module = _Caches().eval()

    def call(step: int) -> tuple[Any, Any]:
        generator = torch.Generator().manual_seed(step)
        return torch.randn(2, 1, 4, generator=generator), torch.tensor([step])

    def empty() -> dict[str, list[Any]]:
        return {name: [torch.zeros(2, 6, 4)] for name in ("keys", "values")}

    example = (call(0)[0], empty(), call(0)[1])
    result = collage.optimize(module, ["llvm"], example_inputs=example, time_budget_sec=0)
    bundle = collage.load(result.export(tmp_path / "caches.bundle"))
    names = [info.name for info in bundle.outputs]
    assert names == ["seen", "norm", "caches.keys.0", "caches.values.0", "calls"]
    own, ours = empty(), empty()
    given = ours if kind == "torch" else {n: [one[0].numpy()] for n, one in ours.items()}
    for step in range(3):
        x, at = call(step)
        with torch.no_grad():
            wanted = module(x, own, at)
        found = bundle(x, given, at) if kind == "torch" else bundle(x.numpy(), given, at.numpy())
        for name in wanted:
            np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5)
    for name, (cache,) in own.items():
        np.testing.assert_allclose(ours[name][0], cache, rtol=1e-5, atol=1e-6)
    frozen = np.zeros((2, 6, 4), "float32")
    frozen.flags.writeable = False
    with pytest.raises(InputError, match="given for it cannot be written"):
        bundle(x.numpy(), {"keys": [frozen], "values": [frozen.copy()]}, at.numpy())
