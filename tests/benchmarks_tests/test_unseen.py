"""Networks in no list: which are chosen, and that right, wrong and refused are told apart."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)

from benchmarks.zoo import importing  # noqa: E402
from benchmarks.zoo.unseen import sources, table, trial  # noqa: E402
from benchmarks.zoo.unseen.source import Made, smallest  # noqa: E402


def _made(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    made = Made("made here", module, (torch.randn(4, 6),))
    monkeypatch.setattr(sources, "make", lambda name, seed: made)


def test_the_smallest_is_told_by_names_and_counted_among_those() -> None:
    sizes = {"net_base": 90, "net_tiny_v2": 9, "net_tiny": 8, "net_small": 20, "net_88m": 88}
    asked: list[str] = []

    def parameters(name: str) -> int:
        asked.append(name)
        if name == "net_tiny":
            raise RuntimeError("not to be made without weights")
        return sizes[name]

    assert smallest(sizes, parameters) == "net_tiny_v2"
    assert "net_base" not in asked


@pytest.mark.parametrize("variant", ["import", "tvm"])
def test_an_idiom_is_right(variant: str) -> None:
    found = trial.attempt("plain:written_in_place", variant, 60.0, 0.0, 0.0)
    assert found["outcome"] == "passed", found
    assert found["difference"] < 1e-6 and found["seconds"] > 0


def test_another_function_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another network's module stands for one that was imported wrongly."""
    layers = [torch.nn.Linear(6, 6).eval() for _ in range(2)]
    wrong = importing._import(importing.exported(layers[0], (torch.randn(4, 6),), "torch"))
    monkeypatch.setattr(importing, "_import", lambda source: wrong)
    _made(monkeypatch, layers[1])
    found = trial.attempt("any:thing", "import", 60.0, 0.0, 0.0)
    assert found["outcome"] == "wrong" and "off by" in found["reason"]


def test_a_refusal_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class Draws(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            return x + torch.rand_like(x)

    _made(monkeypatch, Draws())
    for variant in ("import", "tvm"):
        found = trial.attempt("any:thing", variant, 60.0, 0.0, 0.0)
        assert found["outcome"] == "refused" and "draws random numbers" in found["reason"]


def test_what_pytorch_cannot_run_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    _made(monkeypatch, torch.nn.Linear(5, 2))
    found = trial.attempt("any:thing", "import", 60.0, 0.0, 0.0)
    assert found["outcome"] == "left out" and "shapes cannot be multiplied" in found["reason"]


def test_what_amplifies_rounding_is_judged_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32 eager PyTorch is as far from the result as anything else."""

    class Amplifies(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            return torch.sin(1e7 * torch.exp(x))

    _made(monkeypatch, Amplifies())
    found = trial.attempt("any:thing", "import", 60.0, 0.0, 0.0)
    assert found["outcome"] == "passed" and found["eager"] < 1e-6
    _made(monkeypatch, Amplifies())
    assert trial.attempt("any:thing", "tvm", 60.0, 0.0, 0.0)["outcome"] == "not judged"


def test_the_page_counts_by_source_and_leaves_out_what_was_not_made() -> None:
    row = {"network": "timm:beit", "variant": "import", "commit": "abc"}
    page = table.page(
        [
            {**row, "outcome": "passed", "seconds": 3.0, "built": "beit_base"},
            {**row, "network": "timm:deit", "outcome": "left out", "reason": "no weights"},
            {**row, "network": "plain:sorts", "outcome": "refused", "reason": "a|b"},
        ]
    )
    assert "| timm | import | 1 | 1 | 0 | 0 | 0 | 0 | 3.0 | 1 |" in page
    assert "| plain | import | 1 | 0 | 1 | 0 | 0 | 0 |  | 0 |" in page
    assert "refused: a\\|b" in page
