"""MetaSchedule's findings outlive a process, and a replay takes them alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.compile import compile_module
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import ReplayMissError
from collage.backends.contract.registry import get_backend
from collage.backends.storage import CACHE_FILE, read_findings
from tests.backends_tests.tvm import cases as tvm_cases
from tests.backends_tests.tvm.cuda.lowered import kernels


@pytest.mark.slow
def test_tuned_kernels_are_found_again(tmp_path: Path, context: BuildContext) -> None:
    """On the CPU, which every machine can tune for; a GPU takes the same way."""
    pytest.importorskip("cloudpickle")
    random = np.random.default_rng()
    data = random.standard_normal((64, 64), np.float32)
    mod = tvm_cases.partition(lambda emit, x: emit(op.nn.relu(emit(op.matmul(x, x)))), [data])
    backend = get_backend("tvm")
    fresh = BuildContext(tmp_path / "cache", context.work_dir, num_threads=2)
    options = backend.parse_options({"schedule": "metaschedule", "tuning_trials": 2})
    target = BackendTarget("tvm", tvm_cases.tvm_target().device, options)
    first = backend.lower(mod, target, fresh)
    place = fresh.cache_dir / CACHE_FILE
    measured = place.read_text()
    (finding,) = read_findings(place)
    # A trial is a trace, its seconds and more.
    assert max(finding.result["trial"][1]) < 1, "no trial ran"
    second = backend.lower(mod, target, fresh)
    assert place.read_text() == measured
    strict = backend.lower(mod, target, replace(fresh, replay=True))
    # The log alone is enough: what only the cache knew is added to it.
    log = tmp_path / "log.jsonl"
    backend.lower(mod, target, replace(fresh, tuning_log=log))
    assert log.read_text() == measured
    empty = replace(fresh, cache_dir=tmp_path / "empty", tuning_log=log, replay=True)
    alone = backend.lower(mod, target, empty)
    assert log.read_text() == measured and not empty.cache_dir.exists()
    for other in (second, strict, alone):
        for a, b in zip(kernels(first).values(), kernels(other).values(), strict=True):
            assert a.script() == b.script()
    # Linked with the rest of a model, a kernel's name must not clash with any other.
    library = compile_module(mod, [target], tmp_path / "model.so", fresh)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library.path)), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(data)).numpy()
    np.testing.assert_allclose(found, np.maximum(data @ data, 0), rtol=1e-4, atol=1e-4)


def test_a_replay_tunes_nothing(tmp_path: Path, context: BuildContext) -> None:
    data = np.ones((8, 8), np.float32)
    mod = tvm_cases.partition(lambda emit, x: emit(op.nn.relu(x)), [data])
    backend = get_backend("tvm")
    strict = replace(context, cache_dir=tmp_path / "cache", replay=True)
    options = backend.parse_options({"schedule": "metaschedule", "tuning_trials": 1})
    target = BackendTarget("tvm", tvm_cases.tvm_target().device, options)
    with pytest.raises(ReplayMissError, match="tvm's tuning of a kernel of 8x8:float32"):
        backend.lower(mod, target, strict)
