"""Passes that a backend runs over its own partitions before they are compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.compile import compile_module
from collage.backends.contract import BackendTarget, BuildContext, PreparesPartitions, get_backend
from collage.backends.contract.errors import CodegenError
from collage.backends.link import stage_libraries
from collage.testing import graph
from collage.testing.backend_cases import fuse

LLVM = tvm.target.Target("llvm")


@pytest.fixture
def prepare(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., tvm.IRModule]], None]:
    """Gives oneDNN's backend a pass over its partitions, for one test."""

    def give(run: Callable[..., tvm.IRModule]) -> None:
        single = tvm.transform.module_pass(run, opt_level=0, name="own")

        def partition_passes(target: BackendTarget) -> Sequence[tvm.transform.Pass]:
            return [single]

        backend = get_backend("onednn")
        monkeypatch.setattr(backend, "partition_passes", partition_passes, raising=False)
        assert isinstance(backend, PreparesPartitions)

    return give


def compiled(context: BuildContext) -> relax.VirtualMachine:
    target = BackendTarget.of("onednn", LLVM)
    mod = graph([(4, 8)], lambda emit, x: op.tanh(x))
    fused = fuse(target.implementation, target, mod)
    library = compile_module(fused, [target], context.work_dir / "own" / "model.so", context)
    stage_libraries(library, copy=False)
    module = tvm.runtime.load_module(str(library.path))
    return relax.VirtualMachine(module, tvm.cpu())


def test_what_is_compiled_went_through_them(
    prepare: Callable[[Callable[..., tvm.IRModule]], None], context: BuildContext
) -> None:
    seen: list[tuple[list[str], BackendTarget | None]] = []

    def look(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        seen.append(([var.name_hint for var in mod.get_global_vars()], BackendTarget.current()))
        return mod

    prepare(look)
    machine = compiled(context)
    assert seen == [(["fused_relax_tanh_onednn"], BackendTarget.of("onednn", LLVM))]
    x = np.random.default_rng().standard_normal((4, 8), np.float32)
    actual = machine["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(actual, np.tanh(x), rtol=1e-4, atol=1e-5)


def test_one_that_changes_what_a_function_takes_or_fails_is_a_failed_build(
    prepare: Callable[[Callable[..., tvm.IRModule]], None], context: BuildContext
) -> None:
    def rename(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        (var,) = mod.get_global_vars()
        return tvm.IRModule({var: mod[var].with_attr("Codegen", "another")})

    prepare(rename)
    with pytest.raises(CodegenError, match="the passes of 'onednn' change what 'fused_relax_tanh"):
        compiled(context)

    def fail(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        raise ValueError("no such luck")

    prepare(fail)
    with pytest.raises(CodegenError, match=r"a pass of .onednn. fails on .*no such luck"):
        compiled(context)
