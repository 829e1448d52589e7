"""Graphs that a backend must take or refuse, and how the contract partitions and runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax.backend.pattern_registry import get_pattern

from collage.backends.contract import BackendTarget, ExternalBackend, Match, PatternTriple, Verdict
from collage.backends.contract.registry import register_relax_patterns
from collage.backends.relax.tensor_spec import TensorSpec

Array = NDArray[np.generic]


@dataclass(frozen=True)
class PatternCase:
    """A graph that one pattern must accept and compile.

    Attributes
    ----------
    pattern : str
        The triple's name.
    mod : tvm.IRModule
        ``main`` in canonical form, whose last operator is the pattern's root.
    low, high : float
        Range of the uniformly random inputs.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.testing import graph
    >>> case = PatternCase("mine.silu", graph([(3, 7)], lambda emit, x: op.nn.silu(x)), low=0.0)
    >>> case.inputs(np.random.default_rng(0))[0].shape
    (3, 7)
    """

    pattern: str
    mod: tvm.IRModule
    low: float = -2.0
    high: float = 2.0

    def inputs(self, rng: np.random.Generator) -> list[Array]:
        """Fresh random inputs of ``main``."""
        arrays = []
        for param in self.mod["main"].params:
            spec = TensorSpec.of(param)
            if spec.dtype == "bool":
                arrays.append(rng.integers(0, 2, spec.shape).astype(bool))
                continue
            arrays.append(rng.uniform(self.low, self.high, spec.shape).astype(spec.dtype))
        return arrays


@dataclass(frozen=True)
class Refusal:
    """A graph that a pattern matches and its predicate must refuse, for a reason it names.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.testing import graph
    >>> small = graph([(3, 5)], lambda emit, x: op.nn.silu(x))
    >>> Refusal("mine.silu", small, because="too few").because
    'too few'
    """

    pattern: str
    mod: tvm.IRModule
    because: str


class CompiledCases:
    """Cases compiled into one library, case ``i`` as the function ``case<i>``.

    Parameters
    ----------
    library : Path
        The shared library; loaded at once.
    cases : sequence of PatternCase
        In the order of its functions.
    """

    def __init__(self, library: Path, cases: Sequence[PatternCase]) -> None:
        self.library = library
        self.cases = cases
        self._module = tvm.runtime.load_module(str(library))
        self._vm = self.new_machine()

    def new_machine(self) -> relax.VirtualMachine:
        """A virtual machine of its own, for another thread."""
        return relax.VirtualMachine(self._module, tvm.cpu())

    def run(
        self, index: int, inputs: Sequence[Array], vm: relax.VirtualMachine | None = None
    ) -> list[Array]:
        """Outputs of one case.

        Parameters
        ----------
        index : int
            The case's position.
        inputs : sequence of ndarray
            As :meth:`PatternCase.inputs` makes them.
        vm : relax.VirtualMachine, optional
            From :meth:`new_machine`; by default one that is shared.

        Returns
        -------
        list of ndarray
            In the order of the outputs.
        """
        result = (vm or self._vm)[f"case{index}"](*map(tvm.runtime.tensor, inputs))
        results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return [value.numpy() for value in results]


def partition(
    backend: ExternalBackend, target: BackendTarget, cases: Sequence[PatternCase]
) -> tvm.IRModule:
    """One module with a function per case, partitioned by Relax's own pass, by priority.

    Parameters
    ----------
    backend : ExternalBackend
        Whose patterns are tried.
    target : BackendTarget
        With its options.
    cases : sequence of PatternCase
        What the functions are, ``case0`` and so on.

    Returns
    -------
    tvm.IRModule
        Partitions are functions with the attribute ``Codegen``.
    """
    mod = tvm.IRModule()
    for index, case in enumerate(cases):
        main = relax.utils.copy_with_new_vars(case.mod["main"])
        mod[f"case{index}"] = main.with_attr("global_symbol", f"case{index}")
    return fuse(backend, target, mod)


def fuse(backend: ExternalBackend, target: BackendTarget, mod: tvm.IRModule) -> tvm.IRModule:
    """A module in which a backend has all that its patterns take.

    Parameters
    ----------
    backend, target
        As :func:`partition` takes them.
    mod : tvm.IRModule
        In canonical form.

    Returns
    -------
    tvm.IRModule
        With a composite function in each partition.
    """
    patterns = [get_pattern(name) for name in register_relax_patterns(backend, target)]
    return relax.transform.FuseOpsByPattern(patterns, annotate_codegen=True)(mod)


def composite_names(mod: tvm.IRModule) -> list[str]:
    """Names of all composites inside the ``Codegen`` functions of a module."""
    names = []
    for func in mod.functions.values():
        if not isinstance(func, relax.Function) or "Codegen" not in (func.attrs or {}):
            continue
        for block in func.body.blocks:
            inner = (b.value for b in block.bindings if isinstance(b.value, relax.Function))
            names += [str(f.attrs["Composite"]) for f in inner]
    return names


def verdicts(triple: PatternTriple, func: relax.Function) -> list[Verdict]:
    """The predicate's answers wherever the pattern matches in a function.

    Parameters
    ----------
    triple : PatternTriple
        One of a backend's.
    func : relax.Function
        With one dataflow block.

    Returns
    -------
    list of Verdict
        In the order of the bindings; empty where the pattern matches nowhere.

    Examples
    --------
    >>> from tvm.relax import dpl, op
    >>> from collage.testing import graph
    >>> silu = dpl.is_op("relax.nn.silu")(dpl.wildcard())
    >>> triple = PatternTriple("mine.silu", silu, lambda match: Verdict.no("too few"))
    >>> mod = graph([(3, 5)], lambda emit, x: op.nn.silu(x))
    >>> verdicts(triple, mod["main"])
    [Verdict(accepted=False, reason='too few')]
    """
    values = {b.var: b.value for block in func.body.blocks for b in block.bindings}
    answers = []
    for value in values.values():
        matched = triple.pattern.extract_matched_expr(value, values)
        if matched is None:
            continue
        found = {name: matched.get(pattern) for name, pattern in triple.annotations.items()}
        annotated = {name: expr for name, expr in found.items() if expr is not None}
        answers.append(triple.predicate(Match(value, annotated)))
    return answers


def constants_of(mod: tvm.IRModule) -> list[Array]:
    """Every constant of ``main``."""
    found: list[Array] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, tvm.ir.GenericConst):
            found.append(expr.value.numpy())

    relax.analysis.post_order_visit(mod["main"], visit)
    return found
