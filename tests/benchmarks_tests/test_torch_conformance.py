"""PyTorch's own samples: a few here, all of them with the networks of the zoo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.torch_conformance import table

_ROW = {"stage": "torch", "variant": "tvm", "commit": "c", "operator": "add", "dtype": "float32"}


def test_table_counts_and_groups() -> None:
    rows = [
        {**_ROW, "network": "add:float32:0", "outcome": "passed"},
        {**_ROW, "network": "add:float32:1", "outcome": "refused", "reason": "no (mul_1)"},
        {**_ROW, "network": "add:float32:2", "outcome": "refused", "reason": "no (mul_2)"},
        {**_ROW, "network": "add:float32:3", "outcome": "refused", "reason": "depends on data"},
        {**_ROW, "network": "sub:float32:0", "outcome": "wrong", "reason": "off"},
        {**_ROW, "network": "rand:float32:0", "outcome": "left out", "reason": "random"},
        {**_ROW, "network": "sub:float32:1", "outcome": "none", "reason": "fewer samples"},
    ]
    page = table.page(rows)
    assert "| all | 1 | 5 | 1 | 3 | 1 | 0 | 25.0 % |" in page
    assert "- sub:float32:0: off" in page
    assert "| add | 2 | no (mul) |" in page
    assert "| random | add |" in page


@pytest.mark.torch
def test_runner_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    pytest.importorskip("expecttest")
    from benchmarks.torch_conformance import __main__ as conformance
    from benchmarks.torch_conformance.samples import Case

    wanted = ("tanh:float32:0", "nonzero:float32:0", "normal:float32:0", "nn.Linear:float32:0")
    monkeypatch.setattr(conformance, "names", lambda dtypes: list(wanted))
    monkeypatch.setattr("sys.argv", ["conformance", "--out", str(tmp_path)])
    assert str(Case.of(wanted[0])) == wanted[0]
    assert conformance.main() == 0
    rows = (tmp_path / "torch.jsonl").read_text().splitlines()
    found = {row["network"]: row["outcome"] for row in map(json.loads, rows)}
    assert found == dict(zip(wanted, ("passed", "refused", "left out", "passed"), strict=True))
    assert conformance.main() == 0
    assert (tmp_path / "torch.jsonl").read_text().splitlines() == rows
    assert "| all | " in (tmp_path / "torch_conformance.md").read_text()


@pytest.mark.torch
def test_what_differs_is_told() -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    pytest.importorskip("expecttest")
    from benchmarks.torch_conformance.samples import Sample
    from benchmarks.torch_conformance.trial import difference

    x = torch.tensor([1.0, float("nan")])
    call = Sample(torch.add, (x,), {"other": 1.0})
    wanted = [call(x)]
    assert difference([wanted[0].numpy()], wanted, call) == ""
    assert "off by" in difference([x.numpy()], wanted, call)
    assert "1 outputs instead of 0" in difference([x.numpy()], [], call)
    assert "instead of float32[2]" in difference([x.double().numpy()], wanted, call)


@pytest.mark.torch
@pytest.mark.parametrize("operator", ["svd", "linalg.svd", "linalg.eigh"])
def test_vectors_are_compared_but_for_their_signs(operator: str) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    from benchmarks.torch_conformance.factors import in_what_is_unique

    x = torch.randn(2, 4, 4)
    x = x + x.mT
    function = torch.svd if operator == "svd" else getattr(torch.linalg, operator.split(".")[1])
    found = list(function(x))
    turned = [y if y.dim() == 2 else -y for y in found]
    wrong = [y if y.dim() == 2 else y.roll(1, -1) for y in found]
    one, two, three = (in_what_is_unique(operator, each) for each in (found, turned, wrong))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(one, two, strict=True))
    assert not all(torch.allclose(a, b, atol=1e-5) for a, b in zip(one, three, strict=True))


@pytest.mark.zoo
@pytest.mark.torch
@pytest.mark.timeout(4 * 3600)
def test_every_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    pytest.importorskip("expecttest")
    from benchmarks.torch_conformance import __main__ as conformance

    monkeypatch.setattr("sys.argv", ["conformance", "--out", str(tmp_path)])
    assert conformance.main() == 0
