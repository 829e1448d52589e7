"""The registry: names, entry points, and what Relax gets to know."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import op
from tvm.relax.backend.pattern_registry import get_pattern, get_patterns_with_prefix
from tvm.relax.dpl import is_op, wildcard

from collage.backends.contract import (
    Availability,
    BackendTarget,
    BuildContext,
    ExternalBackend,
    Match,
    PatternTriple,
    Verdict,
    registry,
    relax_codegen,
)
from collage.backends.contract.errors import CodegenError, TargetError
from collage.testing.graphs import graph


@dataclass(frozen=True)
class Options:
    minimum: int = 10
    label: str | None = "default"


class Recorder(ExternalBackend):
    """Takes ``exp`` of at least ``minimum`` elements, and notes what its codegen is given."""

    name = "recorder"
    options_type = Options

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], BackendTarget, BuildContext]] = []

    def probe(self) -> Availability:
        return Availability(True)

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        def large(match: Match) -> Verdict:
            enough = int(match.root.ty.shape[0]) >= target.options.minimum
            return Verdict.yes() if enough else Verdict.no("too small")

        x = wildcard()
        wider = is_op("relax.negative")(is_op("relax.exp")(x))
        return [
            PatternTriple("recorder.exp", is_op("relax.exp")(x), large, {"x": x}),
            PatternTriple("recorder.negative_exp", wider, large),
        ]

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        names = [str(function.attrs["global_symbol"]) for function in functions]
        self.calls.append((names, target, context))
        raise CodegenError("stops here", value=names)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A registry that may be changed: what it had comes back afterwards."""
    registry.backend_names()
    before = registry._backends
    monkeypatch.setattr(registry, "_backends", dict(before))
    yield
    registry._load_once.cache_clear()
    for backend in before.values():
        if isinstance(backend, ExternalBackend):
            registry.register_codegen(backend)


@pytest.fixture
def recorder(fresh: None) -> Recorder:
    backend = Recorder()
    registry.register_backend(backend)
    return backend


def target_of(backend: ExternalBackend, **options: object) -> BackendTarget:
    device = tvm.target.Target("llvm")
    return BackendTarget(backend.name, device, backend.parse_options(options))


def named(name: str) -> Recorder:
    return type("Named", (Recorder,), {"name": name})()


def test_builtin_backends_come_first() -> None:
    assert registry.backend_names()[:3] == ["tvm", "onednn", "openblas"]


def test_registered_backend_is_found_and_listed_last(recorder: Recorder) -> None:
    assert registry.get_backend("recorder") is recorder
    assert registry.backend_names()[-1] == "recorder"


def test_unknown_backend_lists_known_ones() -> None:
    known = "known backends: .*onednn, onnxruntime, openblas.*, tvm"
    message = f"there is no backend 'onednnn'; {known}"
    with pytest.raises(TargetError, match=message) as caught:
        registry.get_backend("onednnn")
    assert caught.value.value == "onednnn"


@pytest.mark.parametrize("name", ["recorder", "openblas", "tvm"])
def test_taken_name_is_refused(name: str, recorder: Recorder) -> None:
    before = registry.get_backend(name)
    with pytest.raises(TargetError, match=f"a backend named '{name}' is already registered"):
        registry.register_backend(named(name))
    assert registry.get_backend(name) is before


def test_builtin_name_is_taken_even_before_anything_was_asked_for(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_backends", {})
    registry._load_once.cache_clear()
    with pytest.raises(TargetError, match="'openblas' is already registered"):
        registry.register_backend(named("openblas"))


@pytest.mark.parametrize("name", ["llvm", "cuda", "c"])
def test_name_of_a_tvm_target_kind_is_refused(name: str, fresh: None) -> None:
    with pytest.raises(TargetError, match=f"'{name}' is the name of a TVM target kind"):
        registry.register_backend(named(name))


@pytest.mark.parametrize("name", ["my backend", "", "1st", "a.b"])
def test_name_that_is_no_identifier_is_refused(name: str, fresh: None) -> None:
    with pytest.raises(TargetError, match="is no identifier"):
        registry.register_backend(named(name))


# What Relax knows.


def test_patterns_are_in_relax_s_registry_by_priority(recorder: Recorder) -> None:
    names = registry.register_relax_patterns(recorder, target_of(recorder))
    assert names == ["recorder.negative_exp", "recorder.exp"]
    assert [p.name for p in get_patterns_with_prefix("recorder.")] == names


def test_patterns_of_another_target_replace_earlier_ones(recorder: Recorder) -> None:
    mod = graph([(20,)], lambda _, x: op.exp(x))
    for minimum, taken in ((10, True), (30, False), (15, True)):
        registry.register_relax_patterns(recorder, target_of(recorder, minimum=minimum))
        assert len(get_patterns_with_prefix("recorder.")) == 2
        for patterns in ([get_pattern("recorder.exp")], get_patterns_with_prefix("recorder.")):
            fused = relax.transform.FuseOpsByPattern(patterns, annotate_codegen=True)(mod)
            assert (len(fused.functions) == 2) is taken


def test_registering_makes_plain_relax_byoc_work(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLAGE_CACHE_DIR", str(tmp_path / "cache"))
    mod = graph([(20,)], lambda emit, x: op.negative(emit(op.exp(x))))
    patterns = get_patterns_with_prefix("recorder.")
    fused = relax.transform.FuseOpsByPattern(patterns, annotate_codegen=True)(mod)
    with pytest.raises(RuntimeError, match="stops here"):
        relax.transform.RunCodegen()(fused)
    ((names, target, context),) = recorder.calls
    assert len(names) == 1
    assert target.options == Options()
    assert context.num_threads == 0
    assert context.cache_dir == tmp_path / "cache"


@pytest.mark.parametrize("log", [None, Path("/somewhere/log.jsonl")])
def test_options_and_context_reach_the_codegen_unchanged(
    log: Path | None, recorder: Recorder, context: BuildContext
) -> None:
    context = dataclasses.replace(
        context, num_threads=3, cxx="c++", tuning_log=log, replay=log is not None
    )
    device = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512"})
    codegen = tvm_ffi.get_global_func("relax.ext.recorder")
    func = graph([(20,)], lambda _, x: op.exp(x))["main"].with_attr("global_symbol", "f")
    func = func.with_attr("Codegen", "recorder")
    for options in (Options(5, "x"), Options(0, None), Options()):
        target = BackendTarget("recorder", device, options)
        failures = relax_codegen.CodegenFailures()
        with pytest.raises(RuntimeError):
            codegen([func], relax_codegen.codegen_options([target], context, failures), {})
        names, seen_target, seen_context = recorder.calls[-1]
        assert (names, seen_target, seen_context) == (["f"], target, context)
        assert type(seen_target.options.minimum) is int
        (failure,) = failures.errors
        assert isinstance(failure, CodegenError)
        assert failure.value == ["f"]


# Entry points.


@pytest.fixture
def install(fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Installs a package with an entry point by writing what pip would write."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, value: str, code: str) -> None:
        (tmp_path / f"package_{name}.py").write_text(code)
        info = tmp_path / f"package_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: package_{name}\nVersion: 1.0\n"
        )
        (info / "entry_points.txt").write_text(f"[collage.backends]\n{name} = {value}\n")
        monkeypatch.setattr(registry, "_backends", {})
        registry._load_once.cache_clear()

    yield write
    for module in [name for name in sys.modules if name.startswith("package_")]:
        del sys.modules[module]


GOOD = """
from tests.backends_tests.contract.test_registry import Recorder
class Good(Recorder):
    name = "good"
"""


def test_entry_point_is_loaded_after_the_builtin_ones(install) -> None:  # type: ignore[no-untyped-def]
    install("good", "package_good:Good", GOOD)
    assert registry.backend_names() == [*registry.BUILTIN, "good"]
    assert registry.get_backend("good") is registry.get_backend("good")


@pytest.mark.parametrize(
    ("name", "value", "code", "message"),
    [
        ("gone", "package_gone:Missing", "", "cannot be loaded: AttributeError"),
        ("broken", "package_broken:Broken", "import no_such_module", "ModuleNotFoundError"),
        ("other", "package_other:Good", GOOD, "gives no backend of that name"),
        ("number", "package_number:int", "int = int", "gives no backend of that name"),
        ("openblas", "package_openblas:Good", GOOD.replace("good", "openblas"), "already"),
    ],
)
def test_bad_entry_point_is_named(  # type: ignore[no-untyped-def]
    name: str, value: str, code: str, message: str, install
) -> None:
    install(name, value, code)
    for _ in range(2):
        with pytest.raises(TargetError, match=message) as caught:
            registry.backend_names()
        assert f"entry point '{name} = {value}'" in str(caught.value)
        assert caught.value.value == value


_TOGETHER = """
import threading
from collage.backends.contract.registry import backend_names

errors, start = [], threading.Barrier(8)


def ask():
    start.wait()
    try:
        backend_names()
    except Exception as err:
        errors.append(err)


threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not errors, errors
"""


def test_the_first_threads_may_come_together() -> None:
    subprocess.run([sys.executable, "-c", _TOGETHER], check=True, timeout=300)
