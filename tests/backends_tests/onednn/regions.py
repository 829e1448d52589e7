"""Whole graphs as single oneDNN regions, with Relax's own passes: for the region tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax.backend.pattern_registry import get_pattern
from tvm.relax.expr import _update_type

from collage.backends.compile import compile_module
from collage.backends.contract import BackendTarget, BuildContext, ExternalBackend
from collage.backends.contract.registry import get_backend, register_relax_patterns
from collage.backends.link import stage_libraries
from collage.backends.relax.static_shape import static_shape
from collage.cost.reference import DEFAULT_RTOL, evaluate, largest_error
from tests.object_cache import cache_with_objects

Array = NDArray[np.generic]

_CHILD = """
import sys, numpy as np, tvm
from tvm import relax
vm = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
given = np.load(sys.argv[2])
found = {n: vm[n](tvm.runtime.tensor(given[n])).numpy() for n in given.files}
np.savez(sys.argv[3], **found)
"""


def patterns_of(target: BackendTarget) -> list[Any]:
    """The backend's patterns as Relax's fusion takes them, by priority."""
    names = register_relax_patterns(get_backend("onednn"), target)
    return [get_pattern(name) for name in names]


def partition(mod: tvm.IRModule, patterns: Sequence[Any]) -> tvm.IRModule:
    """Greedy BYOC: every match, joined where possible."""
    mod = relax.transform.FuseOpsByPattern(list(patterns), bind_constants=True)(mod)
    return relax.transform.MergeCompositeFunctions()(mod)


def regions(mod: tvm.IRModule) -> list[relax.Function]:
    """The ``Codegen`` functions of a partitioned module."""
    functions = (f for f in mod.functions.values() if isinstance(f, relax.Function))
    return [f for f in functions if f.attrs and "Codegen" in f.attrs]


def random_inputs(mod: tvm.IRModule, rng: np.random.Generator) -> list[np.ndarray]:
    """Normally distributed float32 inputs of ``main``."""
    shapes = [static_shape(param) for param in mod["main"].params]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


class Regions:
    """Graphs compiled into one library, each as a single region; ``run`` takes their names."""

    def __init__(
        self,
        graphs: Mapping[str, tvm.IRModule],
        folder: Path,
        options: Mapping[str, Any] | None = None,
        num_threads: int = 2,
    ) -> None:
        self.graphs = graphs
        backend = get_backend("onednn")
        assert isinstance(backend, ExternalBackend)
        device = tvm.target.Target("llvm")
        self.target = BackendTarget("onednn", device, backend.parse_options(options or {}))
        context = BuildContext(cache_with_objects(folder), folder / "work", num_threads)
        self.module = tvm.IRModule()
        patterns = patterns_of(self.target)
        for name, mod in graphs.items():
            # The pass that joins composites looks at one function only, 'main'.
            for variable, function in _renamed(partition(mod, patterns), name).functions.items():
                self.module[variable] = function
        library = compile_module(self.module, [self.target], folder / "model.so", context)
        stage_libraries(library, copy=False)
        self.path = library.path
        self.loaded = tvm.runtime.load_module(str(library.path))
        self.vm = relax.VirtualMachine(self.loaded, tvm.cpu())

    def run(self, name: str, inputs: Sequence[Array]) -> list[Array]:
        """Outputs of one graph."""
        return arrays(self.vm[name](*map(tvm.runtime.tensor, inputs)))

    def require_reference(self, name: str) -> None:
        """What one graph gives is what the reference gives, when everything is built, too."""
        rng = np.random.default_rng()
        for _ in range(2):  # the second call finds everything built
            inputs = random_inputs(self.graphs[name], rng)
            expected = evaluate(self.graphs[name], inputs)
            actual = self.run(name, inputs)
            assert len(actual) == len(expected)
            for got, wanted in zip(actual, expected, strict=True):
                assert largest_error(got, wanted) < DEFAULT_RTOL


@relax.expr_functor.mutator
class _Rename(relax.PyExprMutator):  # type: ignore[misc]
    """Puts other global variables in the place of given ones."""

    def __init__(self, names: Mapping[tvm.ir.GlobalVar, tvm.ir.GlobalVar]) -> None:
        super().__init__()
        self.names = names

    def visit_global_var_(self, op: tvm.ir.GlobalVar) -> relax.Expr:
        return self.names.get(op, op)


def _renamed(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """The module with ``main`` called ``name`` and its regions named after it."""
    names = {}
    for index, (variable, function) in enumerate(mod.functions.items()):
        new = name if variable.name_hint == "main" else f"{name}_region{index}"
        names[variable] = tvm.ir.GlobalVar(new)
        _update_type(names[variable], function.ty)
    result = tvm.IRModule()
    for variable, function in mod.functions.items():
        renamed = _Rename(names).visit_expr(function)
        symbol = names[variable].name_hint
        result[names[variable]] = renamed.with_attr("global_symbol", symbol)
    return result


def arrays(result: Any) -> list[Array]:
    """The tensors of a possibly nested result."""
    if isinstance(result, tvm.runtime.Tensor):
        return [result.numpy()]
    return [array for field in result for array in arrays(field)]


def run_elsewhere(
    library: Path, given: Mapping[str, Array], folder: Path, **environment: str
) -> tuple[Mapping[str, Array], str]:
    """What functions of one input give in another process, by name, and what it printed.

    oneDNN reads its environment when it is loaded: what it may use of the processor, and what it
    tells.
    """
    np.savez(folder / "given.npz", **given)
    files = [str(library), str(folder / "given.npz"), str(folder / "found.npz")]
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, *files],
        env={**os.environ, **environment},
        check=True,
        timeout=300,
        capture_output=True,
        text=True,
    )
    return np.load(folder / "found.npz"), done.stdout
