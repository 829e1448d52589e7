"""A limit on memory holds for what is returned, or is refused with the least there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.contract.errors import MemoryLimitError
from collage.bundle import read_report
from collage.bundle.manifest import read_manifest
from collage.cli import main
from collage.cli.terminal.options import parse_bytes
from collage.report import MemoryUse
from collage.testing import graph
from tests.collage_tests.conftest import TARGETS
from tests.collage_tests.pipeline.flat_costs import FlatCosts

WIDTH, LAYERS = 256, 4
LAYER = 4 * WIDTH * WIDTH
"""Bytes of a layer's weights: everything else is small beside them."""


def _dense() -> tvm.IRModule:
    """TVM's virtual machine reads its weights into copies, while OpenBLAS takes them as they lie.

    Whether oneDNN packs such weights depends on the processor: these tests do not prefer it.
    """
    rng = np.random.default_rng()

    def body(emit, x):
        for _ in range(LAYERS):
            weights = rng.standard_normal((WIDTH, WIDTH), "float32") / np.float32(np.sqrt(WIDTH))
            x = emit(op.nn.relu(emit(op.matmul(x, relax.const(weights)))))
        return op.exp(x)

    return graph([(4, WIDTH)], body)


def _taken(result: collage.Result) -> MemoryUse:
    (row,) = (row for row in result.report.end_to_end if row.chosen)
    assert row.memory is not None
    return row.memory


@pytest.mark.parametrize("times", [1.3, 2.2, 3.6, 4.2])
def test_what_is_returned_is_within_the_limit(times: float, tmp_path: Path) -> None:
    mod, limit = _dense(), int(times * LAYERS * LAYER)
    result = collage.optimize(
        mod, ["llvm", "openblas"], memory_limit_bytes=limit, cost_model=FlatCosts("tvm")
    )
    taken = _taken(result)
    assert taken.total_bytes <= limit
    folder = result.export(tmp_path / "bundle")
    assert read_manifest(folder).memory == taken
    over = [row for row in result.report.end_to_end if row.median_sec is None]
    assert all(row.memory is not None and row.memory.total_bytes > limit for row in over)
    assert all("the limit is" in row.note for row in over)
    # Without a limit TVM has it all, with four times the weights it still does.
    backends = {one.backend for one in result.partitioning.candidates if not one.inline}
    if times > 4:
        assert not over and backends == {"tvm"}
    else:
        assert {row.name for row in over} >= {"search:without a limit", "single:tvm"}
        assert "openblas" in backends
    x = np.random.default_rng().standard_normal((4, WIDTH), "float32")
    expected = collage.optimize(mod, ["llvm"], cost_model=FlatCosts("llvm"))
    found, wanted = (
        collage.load(one.export(tmp_path / name))(x)
        for name, one in (("found", result), ("wanted", expected))
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-3)


def test_some_partitions_stay_with_who_is_fastest() -> None:
    # A layer of TVM's takes its weights three times more: room for two such, not for four.
    limit = int((LAYERS + 2 * 3 + 0.4) * LAYER)
    result = collage.optimize(
        *(_dense(), ["llvm", "openblas"]),
        memory_limit_bytes=limit,
        cost_model=FlatCosts("tvm"),
    )
    assert (LAYERS + 2 * 3) * LAYER <= _taken(result).total_bytes <= limit
    backends = [one.backend for one in result.partitioning.candidates if not one.inline]
    assert {"tvm", "openblas"} == set(backends)
    assert any("1 contender" in one or "contenders" in one for one in result.report.remarks)


@pytest.mark.parametrize("strategy", ["search", "single:onednn"])
def test_what_cannot_be_says_the_least_there_is(strategy: str) -> None:
    with pytest.raises(MemoryLimitError, match=r"fits into 512.0 KiB; the least takes .*weights 1"):
        collage.optimize(
            *(_dense(), TARGETS),
            memory_limit_bytes=512 << 10,
            strategy=strategy,
            cost_model=FlatCosts("onednn"),
        )


def test_all_functions_together_are_within_the_limit() -> None:
    one, other = _dense()["main"], _dense()["main"]
    mod = tvm.IRModule(
        {
            name: function.with_attr("global_symbol", name)
            for name, function in (("one", one), ("other", other))
        }
    )
    with pytest.raises(MemoryLimitError, match="all of them together take"):
        collage.optimize(
            *(mod, ["llvm", "openblas"]),
            memory_limit_bytes=int(1.6 * LAYERS * LAYER),
            cost_model=FlatCosts("tvm"),
        )


def test_a_refinement_keeps_to_the_limit() -> None:
    limit = int(1.6 * LAYERS * LAYER)
    result = collage.optimize(
        *(_dense(), TARGETS),
        memory_limit_bytes=limit,
        refine_trials=4,
        cost_model=FlatCosts("tvm"),
    )
    assert _taken(result).total_bytes <= limit


@pytest.mark.parametrize(
    ("text", "expected"), [("7", 7), ("2K", 2048), ("256M", 256 << 20), ("0.5G", 512 << 20)]
)
def test_bytes_are_read(text: str, expected: int) -> None:
    assert parse_bytes("--memory-limit", text) == expected


@pytest.mark.parametrize("text", ["", "M", "-1", "1T", "1 M", "1.M", "nan"])
def test_what_is_no_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(MemoryLimitError, match="write bytes"):
        parse_bytes("--memory-limit", text)


def test_the_command_takes_a_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        net (float[4, 8] x) => (float[4, 8] y) { y = Relu(x) }"""
    )
    onnx.save(net, tmp_path / "net.onnx")
    common = ["optimize", str(tmp_path / "net.onnx"), "-t", "llvm", "--estimate"]
    output = ["-o", str(tmp_path / "bundle")]
    assert main([*common, *output, "--memory-limit", "1M"]) == 0
    assert "memory limit 1.0 MiB" in read_report(tmp_path / "bundle").remarks
    capsys.readouterr()
    assert main([*common, *output, "--memory-limit", "16"]) == 2
    assert "nothing that was found fits into 16 B" in capsys.readouterr().err
    assert main([*common, *output, "--memory-limit", "0"]) == 2
