"""The standard's cases through the whole way: a sample here, all of them in the slow suite."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.conformance import __main__ as conformance
from benchmarks.conformance import table
from benchmarks.conformance.cases import cases
from benchmarks.conformance.peers import attempt_peer
from benchmarks.conformance.runs import PEERS
from benchmarks.conformance.trial import attempt

_SAMPLE = (
    *("lstm_with_peepholes", "gru_seq_length", "simple_rnn_batchwise", "if", "loop11"),
    *("scan9_sum", "qlinearconv", "dynamicquantizelinear", "stft", "dft_inverse_opset19"),
    *("resize_downsample_scales_cubic_antialias", "reduce_max_empty_set", "identity"),
    # What TVM alone gets wrong or cannot compile: a row that is all masked, and so on.
    *("attention_causal_boolmask_nan_robustness", "attention_4d_padded_kv_bf16", "cosh_example"),
    *("mod_float_edge_cases_fmod_0_float32", "reduce_max_bool_inputs", "tril_zero"),
    *(
        "split_zero_size_splits_opset18",
        "unique_sorted_without_axis",
        "basic_deform_conv_with_padding",
    ),
    *(
        "split_to_sequence_1",
        "pow_types_int64_int64",
        "bitcast_float32_to_int32",
        "linear_attention_gated",
    ),
    "roialign_mode_max",
)


@pytest.mark.parametrize("name", _SAMPLE)
def test_sample_is_right(name: str) -> None:
    if name not in cases():
        pytest.skip("not in this version of the standard")
    assert attempt(name, "tvm").get("reason", "") == ""


def test_refusals_say_why() -> None:
    for name, reason in (
        ("unique_sorted_with_axis", "depends on data"),
        ("equal_string", "holds strings"),
        ("training_dropout", "draws random numbers"),
        ("cast_FLOAT_to_FLOAT8E5M2", "not computed with here: float8e5m2"),
        ("cast_FLOAT_to_INT4", "not computed with here: int4"),
        ("sequence_insert_at_back", "input 'sequence' is no tensor"),
    ):
        answer = attempt(name, "tvm")
        assert (answer["outcome"], reason in answer["reason"]) == ("refused", True)


def test_runner_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [
        "conformance",
        "--cases",
        "unique_sorted_with_axis,relu_expanded",
        "--backends",
        "tvm,onednn",
    ]
    monkeypatch.setattr("sys.argv", [*argv, "--out", str(tmp_path)])
    assert conformance.main() == 0
    rows = (tmp_path / "conformance.jsonl").read_text().splitlines()
    names = {(row["network"], row["variant"]): row["outcome"] for row in map(json.loads, rows)}
    assert names["unique_sorted_with_axis", "tvm"] == "refused"
    assert set(names.values()) == {"passed", "refused"}
    assert conformance.main() == 0
    assert (tmp_path / "conformance.jsonl").read_text().splitlines() == rows
    page = (tmp_path / "conformance.md").read_text()
    assert "| Unique | 2 | " in page
    assert "unique_sorted_with_axis" in capsys.readouterr().out


def test_table_counts_and_groups() -> None:
    row = {"stage": "onnx", "commit": "c", "float32": True, "operator": "Add", "taken": 1}
    rows = [
        {**row, "network": "one", "variant": "tvm", "outcome": "passed"},
        {**row, "network": "two", "variant": "tvm", "outcome": "refused", "reason": "no"},
        {**row, "network": "two", "variant": "onednn", "outcome": "refused", "reason": "no"},
        {**row, "network": "three", "variant": "onednn", "outcome": "wrong", "reason": "off"},
    ]
    page = table.page(rows)
    assert "| tvm | 2 | 1 | 1 | 0 | 0 |  | 2 | 1 (50.0 %) |" in page
    assert "- three (onednn): off" in page
    assert "| Add | 1 | no |" in page


@pytest.mark.parametrize("engine", PEERS)
def test_other_engines_take_the_same_cases(engine: str) -> None:
    pytest.importorskip(engine.removesuffix(" itself"))
    assert attempt_peer("relu", engine)["outcome"] == "passed"
    answer = attempt_peer("split_to_sequence_1", engine)
    assert (answer["outcome"], bool(answer["reason"])) == ("refused", True)


def test_what_others_take_is_listed() -> None:
    row = {"stage": "onnx", "commit": "c", "float32": True, "operator": "Add"}
    rows = [
        {**row, "network": "one", "variant": "tvm", "outcome": "passed"},
        {**row, "network": "two", "variant": "tvm", "outcome": "refused", "reason": "no"},
        *(
            {**row, "network": name, "variant": "onnxruntime itself", "outcome": outcome}
            for name, outcome in (("one", "refused"), ("two", "passed"), ("of no use", "passed"))
        ),
    ]
    page = table.page(rows)
    assert "| onnxruntime itself | 2 | 1 | 1 | 1 |" in page
    assert "| Add | 1 |  |" in page
    assert "| onnxruntime itself | 3 |" not in page and "(onnxruntime itself)" not in page


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_every_case_with_every_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["conformance", "--out", str(tmp_path)])
    assert conformance.main() == 0
