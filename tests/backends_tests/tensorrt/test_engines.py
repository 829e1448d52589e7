"""Engines: caches, refusals, limits, devices. Built by TensorRT for RTX with no GPU."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases.tensorrt._case import PICTURE, module, weights
from collage.backends.contract import BuildContext
from collage.backends.contract.errors import BackendUnavailableError, CodegenError, TargetError
from collage.backends.contract.registry import get_backend
from collage.backends.tensorrt import library as adapter
from collage.backends.tensorrt import tuning
from collage.backends.tensorrt.network.constants import RefusalError
from collage.backends.tensorrt.tuning import EngineBuilder
from tests.backends_tests.tensorrt import support

pytestmark = pytest.mark.cuda
pytest.importorskip("tensorrt_rtx", reason="engines without a GPU need TensorRT for RTX")


def _refused_by_tensorrt() -> tvm.IRModule:
    """What the patterns take and TensorRT for RTX does not: bfloat16 transposed convolutions."""
    kernel = weights(4, 3, 3, 3, dtype="bfloat16")
    return module(
        [(PICTURE, "bfloat16")], lambda x: op.nn.conv2d_transpose(op.nn.relu(x), kernel, strides=2)
    )


def _builder(folder: Path, wanted: Any) -> EngineBuilder:
    return EngineBuilder(support.installed(), wanted, support.new_context(folder))


def test_a_refusal_has_tensorrts_own_reason(tmp_path: Path) -> None:
    function, wanted = support.region(_refused_by_tensorrt())
    with pytest.raises(RefusalError, match="deconv") as caught:
        _builder(tmp_path, wanted).engine(function)
    assert isinstance(caught.value, CodegenError)
    assert caught.value.value == "tensorrt_0"
    assert "Error Code" in caught.value.reason and "\n" not in caught.value.reason
    assert not list((tmp_path / "cache" / "tuning").glob("blobs/*"))


def test_an_operator_without_a_converter_is_named(tmp_path: Path) -> None:
    block = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 5), "float32"))
    with block.function("main", [x]):
        block.emit_func_output(block.emit(op.cumsum(x, 0)))
    function = block.get()["main"].with_attr("global_symbol", "tensorrt_0")
    with pytest.raises(RefusalError, match=r"operator relax\.cumsum is not supported"):
        _builder(tmp_path, support.target()).engine(function)


def test_codegen_names_every_refused_region(tmp_path: Path) -> None:
    function, wanted = support.region(_refused_by_tensorrt())
    good, _ = support.region(support.dense(weights(13, 7)))
    functions = [
        function,
        good.with_attr("global_symbol", "tensorrt_1"),
        function.with_attr("global_symbol", "tensorrt_2"),
    ]
    backend: Any = get_backend("tensorrt")
    context = support.new_context(tmp_path)
    assert list(backend.refusals(functions, wanted, context)) == ["tensorrt_0", "tensorrt_2"]
    with pytest.raises(CodegenError) as caught:
        backend.codegen(functions, wanted, context)
    assert set(caught.value.value) == {"tensorrt_0", "tensorrt_2"}
    assert "'tensorrt_0'" in str(caught.value) and "'tensorrt_2'" in str(caught.value)


def test_architectures_out_of_reach_are_refused_beforehand(tmp_path: Path) -> None:
    package = support.installed()
    assert 89 in package.capabilities() and 90 not in package.capabilities()
    function, _ = support.region(support.dense(weights(13, 7)))
    hopper = support.target("sm_90a")
    with pytest.raises(RefusalError, match=r"no engine for compute capability 9\.0; .* 8\.9"):
        _builder(tmp_path, hopper).engine(function)
    verdict = get_backend("tensorrt").accepts_region([], hopper)  # type: ignore[attr-defined]
    assert not verdict and "compute capability 9.0" in verdict.reason
    assert not support.partition(support.dense(weights(13, 7)), hopper).functions


def test_a_capability_that_lacks_an_operator_refuses_it(tmp_path: Path) -> None:
    function, _ = support.region(support.dense(weights(13, 7)))
    with pytest.raises(RefusalError, match="FP32 GEMM is not supported"):
        _builder(tmp_path, support.target("sm_75")).engine(function)


@pytest.mark.parametrize("number", [80, 86, 89, 120, 121])
def test_engines_for_every_capability(number: int, tmp_path: Path) -> None:
    function, wanted = support.region(support.dense(weights(13, 7)))
    wanted = dataclasses.replace(wanted, device=support.target(f"sm_{number}").device)
    assert len(_builder(tmp_path, wanted).engine(function).plan) > 1000


def test_an_engine_is_built_once(tmp_path: Path) -> None:
    function, wanted = support.region(support.dense(weights(13, 7)))
    renamed = function.with_attr("global_symbol", "tensorrt_7")
    first, second = _builder(tmp_path, wanted), _builder(tmp_path, wanted)
    engine, again = first.engine(function), second.engine(renamed)
    assert (first.built, second.built) == (1, 0)
    assert (engine.symbol, again.symbol) == ("tensorrt_0", "tensorrt_7")
    assert engine.plan == again.plan and engine.digest == again.digest
    assert [(t.size, t.bits) for t in engine.inputs + engine.outputs] == [
        (39, 32),
        (21, 32),
    ]


def test_other_weights_options_and_devices_are_other_engines(tmp_path: Path) -> None:
    function, wanted = support.region(support.dense(weights(13, 7, seed=1)))
    other, _ = support.region(support.dense(weights(13, 7, seed=2)))
    half = dataclasses.replace(wanted, options=dataclasses.replace(wanted.options, use_fp16=True))
    older = dataclasses.replace(wanted, device=support.target("sm_86").device)
    builders = []
    for region, where in ((function, wanted), (other, wanted), (function, half), (function, older)):
        builders.append(_builder(tmp_path, where))
        builders[-1].engine(region)
    assert [builder.built for builder in builders] == [1, 1, 1, 1]
    assert len(list((tmp_path / "cache" / "tuning").glob("blobs/*"))) == 4


def test_what_was_checked_is_what_is_compiled(tmp_path: Path) -> None:
    mod = support.dense(weights(13, 7))
    partitioned = support.partition(mod, support.target())
    context = support.new_context(tmp_path)
    backend: Any = get_backend("tensorrt")
    assert not backend.refusals(partitioned.functions, partitioned.target, context)
    plans = {p: p.stat().st_mtime_ns for p in context.cache_dir.glob("tuning/blobs/*")}
    from collage.backends.compile import compile_module

    compile_module(
        partitioned.module,
        [support.native(), partitioned.target],
        tmp_path / "model.so",
        context,
    )
    assert plans == {p: p.stat().st_mtime_ns for p in context.cache_dir.glob("tuning/blobs/*")}


def test_timing_cache_is_written_and_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "beside" / "log.timing"
    handed: list[bytes] = []
    original = adapter.build_plan

    def recording(*args: Any) -> Any:
        handed.append(args[4])
        return original(*args)

    monkeypatch.setattr("collage.backends.tensorrt.tuning.build_plan", recording)
    for seed in (1, 2):
        function, wanted = support.region(
            support.dense(weights(13, 7, seed=seed)), timing_cache=str(place)
        )
        _builder(tmp_path, wanted).engine(function)
    assert handed == [b"", place.read_bytes()]
    assert len(place.read_bytes()) > 100


def test_default_timing_cache_names_version_and_device(tmp_path: Path) -> None:
    function, wanted = support.region(support.dense(weights(13, 7)))
    builder = _builder(tmp_path, wanted)
    builder.engine(function)
    version = support.installed().version
    assert builder.timing_cache == tmp_path / f"cache/tensorrt/tensorrt_rtx-{version}-sm_89.timing"
    assert builder.timing_cache.is_file()


def test_a_replay_leaves_the_timing_cache_alone(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "model.jsonl"
    context = dataclasses.replace(support.new_context(tmp_path), tuning_log=log)
    strict = dataclasses.replace(context, replay=True)
    package = support.installed()
    place = context.cache_dir / f"tensorrt/{package.name}-{package.version}-sm_89.timing"

    def build(columns: int, context: BuildContext, **options: str) -> None:
        function, wanted = support.region(support.dense(weights(13, columns)), **options)
        builder = EngineBuilder(package, wanted, context)
        assert builder.engine(function).plan and builder.built == 1

    build(3, strict)
    assert not log.parent.exists() and not context.cache_dir.exists()
    build(4, context)
    before, logged = place.read_bytes(), log.read_bytes()
    assert len(before) > 100
    build(5, strict)
    assert place.read_bytes() == before and log.read_bytes() == logged
    build(6, context, timing_cache=str(tmp_path / "mine"))
    assert (tmp_path / "mine").is_file() and place.read_bytes() == before


@pytest.mark.parametrize("is_logged", [True, False])
def test_a_log_alone_replays_the_engine(
    is_logged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_logged:
        # As if it were large: then the log has the times that decide it.
        monkeypatch.setattr(tuning, "LOGGED_ENGINE_BYTES", 0)
    log = tmp_path / "model.jsonl"
    function, wanted = support.region(support.dense(weights(13, 7)))
    context = dataclasses.replace(support.new_context(tmp_path), tuning_log=log)
    engine = EngineBuilder(support.installed(), wanted, context).engine(function)
    before = log.read_bytes()
    blob, finding = map(json.loads, before.splitlines())
    assert (blob["kind"], finding["backend"]) == ("blob", "tensorrt") and len(before) < 100_000
    assert {n: finding["result"][n]["in_log"] for n in finding["result"]} == (
        {"engine": True} if is_logged else {"engine": False, "timings": True}
    )

    handed: list[Any] = []

    def recording(*args: Any) -> Any:
        handed.append(args[4:])
        return adapter.build_plan(*args)

    monkeypatch.setattr(tuning, "build_plan", recording)
    elsewhere = dataclasses.replace(context, cache_dir=tmp_path / "empty", replay=True)
    builder = EngineBuilder(support.installed(), wanted, elsewhere)
    again = builder.engine(function)
    assert builder.built == (0 if is_logged else 1)
    assert again == engine
    if not is_logged:
        (times,) = handed
        assert len(times[0]) == finding["result"]["timings"]["size"] and times[1] is True
    assert log.read_bytes() == before and not elsewhere.cache_dir.exists()


def test_a_foreign_timing_cache_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "timings"
    place.write_bytes(b"not a timing cache")
    function, wanted = support.region(support.dense(weights(13, 7)), timing_cache=str(place))
    assert _builder(tmp_path, wanted).engine(function).plan
    assert place.read_bytes() != b"not a timing cache" and len(place.read_bytes()) > 100


def test_another_version_is_refused_with_the_targets() -> None:
    version = support.installed().version
    assert get_backend("tensorrt").parse_options({"tensorrt_version": version})
    with pytest.raises(TargetError, match=rf"wants version 9\.9, .* {version} is installed"):
        get_backend("tensorrt").parse_options({"tensorrt_version": "9.9"})


def test_workspace_limit_is_kept(tmp_path: Path) -> None:
    small, large = (
        support.region(support.dense(weights(13, 7)), max_workspace_size=size)
        for size in (1 << 20, 1 << 26)
    )
    with pytest.raises(RefusalError, match="workspace limit"):
        _builder(tmp_path, small[1]).engine(small[0])
    assert _builder(tmp_path, large[1]).engine(large[0]).plan


def test_tf32_is_off_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, flags = support.installed(), []
    builder = package.module.Builder
    original = builder.build_serialized_network

    def recording(self: Any, network: Any, config: Any) -> Any:
        flags.append(config.get_flag(package.module.BuilderFlag.TF32))
        return original(self, network, config)

    monkeypatch.setattr(builder, "build_serialized_network", recording)
    for options in ({}, {"use_tf32": True}):
        function, wanted = support.region(support.dense(weights(13, 7)), **options)
        _builder(tmp_path, wanted).engine(function)
    assert flags == [False, True]


def test_the_runtime_of_another_version_is_refused() -> None:
    backend: Any = get_backend("tensorrt")
    with pytest.raises(BackendUnavailableError, match=r"built by tensorrt_rtx 1\.0\.0"):
        backend.load_runtime("python:tensorrt_rtx:1.0.0")
