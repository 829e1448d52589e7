"""The zoo: what it lists, that its stages tell right from wrong, and a sample of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)

from benchmarks.gpu.networks import build  # noqa: E402
from benchmarks.zoo import importing, table, table_run  # noqa: E402
from benchmarks.zoo.__main__ import chosen  # noqa: E402
from benchmarks.zoo.compiling import TARGETS, compile_network  # noqa: E402
from benchmarks.zoo.families import NETWORKS  # noqa: E402
from benchmarks.zoo.results import Results  # noqa: E402
from benchmarks.zoo.samples import CPU, GPU, QUICK  # noqa: E402


def test_list_is_broad_and_read_without_the_packages() -> None:
    """Of each of the families that people deploy, from all sources, several networks."""
    families = {network.family for network in NETWORKS.values()}
    assert len(NETWORKS) >= 200 and len(families) >= 20
    for sample in (CPU, GPU):
        assert {NETWORKS[name].family for name in sample} == families
    assert all(not NETWORKS[name].needs for name in QUICK)
    lines = "import sys, benchmarks.zoo.families; print(*(m for m in sys.modules if '.' not in m))"
    loaded = subprocess.run(
        [sys.executable, "-c", lines], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"timm", "torchvision", "transformers", "diffusers", "monai"} & set(loaded)


def test_networks_are_chosen_by_words_and_samples() -> None:
    assert chosen("plain/lstm") == ["plain/lstm"]
    assert set(chosen("lstm")) == {"plain/lstm", "plain/bilstm_tagger", "plain/conv_lstm"}
    assert chosen("@quick")[: len(QUICK)] == list(QUICK)
    assert chosen("plain/lstm=bfloat16x8,plain/lstm") == ["plain/lstm=bfloat16x8", "plain/lstm"]
    with pytest.raises(SystemExit, match="no network's name contains 'zebra'"):
        chosen("zebra")


def test_weights_are_seeded_and_hide_nothing() -> None:
    first, again, other = (build("plain/rcan", seed) for seed in (1, 1, 2))
    weights = [dict(module.named_parameters()) for module in (first, again, other)]
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name])
        assert not torch.equal(weight, weights[2][name])
        assert weight.numel() == 1 or weight.std() > 0


@pytest.mark.parametrize("name", QUICK)
def test_sample_is_imported_right(name: str) -> None:
    answer = importing.import_network(name, "torch", check_sec=60.0)
    assert "failure" not in answer
    assert importing.is_right(answer), answer


def test_a_wrong_import_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another network's module stands for one that was imported wrongly."""
    wrong = importing._import(
        importing.exported(build("plain/experts", 9), NETWORKS["plain/experts"].draw(0), "torch")
    )
    monkeypatch.setattr(importing, "_import", lambda source: wrong)
    answer = importing.import_network("plain/experts", "torch", check_sec=60.0)
    assert answer["difference"] > 0.1 and not importing.is_right(answer)
    row = {"network": "plain/experts", "stage": "import", "variant": "torch", **answer}
    assert not table.is_good(row) and "WRONG" in table.verdict(row)


def test_results_survive_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "zoo.jsonl"
    row = {"network": "plain/lstm", "stage": "import", "variant": "torch", "wall_sec": 1.0}
    Results(path).add(row)
    with path.open("a") as file:
        file.write(json.dumps(row)[:20])
    again = Results(path)
    assert list(again.rows) == [("plain/lstm", "import", "torch")]
    again.add({**row, "variant": "onnx"})
    assert len(Results(path).rows) == 2


def test_run_is_judged_by_its_error_and_the_best_peer() -> None:
    row: dict[str, Any] = {
        "network": "plain/lstm",
        "variant": "cuda",
        "rms": {"collage": 3e-3, "eager": 2e-3},
        "seconds": {"collage": 2e-3, "eager": 3e-3, "torch.compile": 1e-3},
        "peer_failures": {},
        "commit": "",
        "machine": {"cpu": "a processor", "cores": "4"},
    }
    assert table_run.is_exact(row) and table_run.speed(row) == pytest.approx(0.5)
    row["rms"]["collage"] = 5e-3
    assert not table_run.is_exact(row)
    assert table_run.is_exact({**row, "fewest_elements": 4})
    assert not table_run.is_exact({**row, "fewest_elements": 4000})
    assert "| plain/lstm, bfloat16x8 |" in table_run.run_page(
        [{**row, "variant": "cuda bfloat16x8"}]
    )
    page = table_run.run_page([row])
    assert "1 of 1 have an answer, 0 of these are right" in page and "WRONG" in page


@pytest.mark.parametrize("name", ["plain/experts", "plain/espcn"])
def test_sample_comes_out_of_a_search_right(name: str, tmp_path: Path) -> None:
    """The whole way, measured on this processor in a few seconds."""
    import collage

    module, inputs = build(name, 5), NETWORKS[name].draw(5)
    program = importing.exported(module, inputs, "torch")
    result = collage.optimize(program, ["llvm"], time_budget_sec=10.0)
    found = collage.load(result.export(tmp_path / "bundle"))(*(x.numpy() for x in inputs))
    with torch.no_grad():
        expected = module(*inputs)
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.zoo
@pytest.mark.parametrize("name", NETWORKS)
def test_network_is_imported_right(name: str) -> None:
    answer = importing.import_network(name, "torch", check_sec=300.0)
    if "skipped" in answer:
        pytest.skip(answer["skipped"])
    if answer.get("failed_in") == "export":
        pytest.skip(f"PyTorch's exporter refuses it: {answer['failure']}")
    assert "failure" not in answer, answer["failure"]
    assert "unchecked" in answer or importing.is_right(answer), answer


@pytest.mark.zoo
@pytest.mark.cuda
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("architecture", [name for name in TARGETS if name != "llvm"])
@pytest.mark.parametrize("name", NETWORKS)
def test_network_is_linked_for_a_gpu(name: str, architecture: str, tmp_path: Path) -> None:
    answer = compile_network(name, architecture, "float16", str(tmp_path / "bundle"))
    if "skipped" in answer:
        pytest.skip(answer["skipped"])
    assert "failure" not in answer, answer["failure"]
    assert answer["bytes"] > 0 and sum(answer["partitions"].values()) > 0
