"""Whole models compiled in worker processes: the same libraries, each by itself, nothing left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psutil
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.compile import compile_module
from collage.backends.contract import BackendTarget, BuildContext
from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.database.keys import ModuleKeys
from collage.cost.measure.whole_models import model_builder as whole_model
from collage.cost.measure.whole_models.model_builder import ModelJob, ModelResult, compile_models
from collage.cost.workload.shared_weights import (
    module_file,
    read_module,
    weights_folder,
    write_modules,
)
from collage.testing.fixtures.leftovers import workers
from tests.cost_tests.conftest import ToyTarget
from tests.cost_tests.support import external_partition, native_partition, tensor


def dense(dtype: str, width: int, seed: int = 0) -> tvm.IRModule:
    """relu(x @ w + b), with weights, a scalar and a table of integers."""
    rng = np.random.default_rng(seed)
    w = relax.const(rng.standard_normal((8, width)).astype(dtype), dtype)
    b = relax.const(rng.standard_normal(width).astype(dtype), dtype)
    table = relax.const(rng.permutation(width).astype("int64"))

    def body(x: relax.Var) -> relax.Expr:
        y = op.add(op.matmul(x, w), op.multiply(b, relax.const(2.0, dtype)))
        return op.nn.relu(op.take(y, table, axis=1))

    return native_partition([tensor("x", 4, 8, dtype=dtype)], body)


def toy_module(*shape: int) -> tvm.IRModule:
    return external_partition("toy", [tensor("x", *shape)], op.nn.relu, "toy.relu")


def compiled(
    modules: list[tvm.IRModule],
    targets: list[BackendTarget],
    context: BuildContext,
    config: MeasureConfig,
    folder: Path,
) -> tuple[list[ModelResult], list[int]]:
    jobs = [ModelJob(mod, folder / str(i) / "model.so") for i, mod in enumerate(modules)]
    ended: list[int] = []
    results = compile_models(jobs, targets, context, config, 2, lambda i, _: ended.append(i))
    return results, ended


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_module_comes_back_as_it_was(tmp_path: Path, dtype: str) -> None:
    modules = [dense(dtype, 40), toy_module(3, 5), dense(dtype, 6)]
    write_modules(modules, tmp_path)
    for index, module in enumerate(modules):
        place = module_file(tmp_path, index)
        back = read_module(place, weights_folder(tmp_path))
        tvm.ir.assert_structural_equal(back, module, map_free_vars=True)
        assert back.script(show_meta=False) == module.script(show_meta=False)
        assert ModuleKeys().key(back) == ModuleKeys().key(module)


def test_constants_without_elements_come_back(tmp_path: Path) -> None:
    nothing = relax.const(np.zeros((4, 0), "float32"))
    module = native_partition([tensor("x", 4, 5)], lambda x: op.concat([nothing, x], axis=1))
    write_modules([module], tmp_path)
    back = read_module(module_file(tmp_path, 0), weights_folder(tmp_path))
    assert back.script(show_meta=False) == module.script(show_meta=False)


def test_variants_share_one_file_of_each_weight(tmp_path: Path) -> None:
    first = dense("float32", 3000)
    second = relax.transform.Normalize()(first)
    write_modules([first, second], tmp_path)
    assert len(list((tmp_path / "weights").iterdir())) == 2
    text = module_file(tmp_path, 1).stat().st_size
    assert text < 3000 * 8 * 4, "the weights are not in the module"


def test_libraries_are_the_same_as_compiled_one_by_one(
    context: BuildContext, toy: ToyTarget, tvm_target: BackendTarget, tmp_path: Path
) -> None:
    modules = [dense("float32", 40), toy_module(3, 5), dense("float32", 24, seed=1)]
    targets = [tvm_target, toy()]
    results, ended = compiled(modules, targets, context, MeasureConfig(), tmp_path)
    assert sorted(ended) == [0, 1, 2]
    for index, (module, result) in enumerate(zip(modules, results, strict=True)):
        place = tmp_path / f"alone {index}" / "model.so"
        alone = compile_module(module, targets, place, context, cuda_graph=True)
        made = result.library
        assert result.status is CostStatus.VALID and made is not None
        assert made.path == tmp_path / str(index) / "model.so"
        assert made.path.read_bytes() == place.read_bytes()
        assert made.shared_libraries == alone.shared_libraries
        assert (made.required, made.runtimes) == (alone.required, alone.runtimes)
    assert list(context.work_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("build", "status", "words"),
    [
        ("refuse", CostStatus.BUILD_FAILED, "toy does not want to"),
        ("die", CostStatus.CRASHED, "SIGABRT"),
        ("hang", CostStatus.TIMED_OUT, "no answer within"),
    ],
)
def test_one_that_cannot_be_compiled_hurts_no_other(
    context: BuildContext,
    toy: ToyTarget,
    tvm_target: BackendTarget,
    tmp_path: Path,
    build: str,
    status: CostStatus,
    words: str,
) -> None:
    modules = [dense("float32", 8), toy_module(3, 5), dense("float32", 9)]
    config = MeasureConfig(build_timeout_sec=1.5)
    targets = [tvm_target, toy(build=build)]
    results, _ = compiled(modules, targets, context, config, tmp_path)
    assert [result.status for result in results] == [*(CostStatus.VALID, status, CostStatus.VALID)]
    assert words in results[1].reason and results[1].library is None
    assert all(r.library is not None and r.library.path.exists() for r in results[::2])


def test_an_interrupt_leaves_no_process_and_no_file(
    context: BuildContext, toy: ToyTarget, tvm_target: BackendTarget, tmp_path: Path
) -> None:
    seen: list[psutil.Process] = []
    others = workers()

    def interrupt(index: int, result: ModelResult) -> None:
        seen.extend(workers() - others)
        raise KeyboardInterrupt

    jobs = [
        ModelJob(module, tmp_path / str(index) / "model.so")
        for index, module in enumerate([toy_module(3, 5), dense("float32", 8)])
    ]
    targets = [tvm_target, toy(build="hang")]
    with pytest.raises(KeyboardInterrupt):
        compile_models(jobs, targets, context, MeasureConfig(), 2, interrupt)
    assert len(seen) >= 2
    _, alive = psutil.wait_procs(seen, timeout=10)
    assert alive == []
    assert list(context.work_dir.iterdir()) == []


def test_as_many_compilers_as_fit_into_memory() -> None:
    free = psutil.virtual_memory().available
    assert whole_model._that_fit(0) >= max(1, free // (3 << 30))
    assert whole_model._that_fit(free) == 1
