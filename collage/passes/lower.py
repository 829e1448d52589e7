"""From a partitioning to ordinary Relax BYOC: one function per partition, ``main`` calls them.

The same code extracts a single candidate for measuring, so what is timed is what is deployed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import relax

from collage.backends.contract import (
    PARTITION_ATTR,
    TARGET_ATTR,
    ExternalBackend,
    NativeBackend,
)
from collage.passes.align_weights import align_weights
from collage.passes.channels_last import in_orders_of_borders
from collage.passes.in_bytes import BytesOf, rounding
from collage.rewrite import map_leaves
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits
from collage.search.layouts import reads, renamed
from collage.search.partitioning import Partitioning


def extract(mod: tvm.IRModule, graph: DataflowGraph, candidate: Candidate) -> tvm.IRModule:
    """A module whose ``main`` calls just the one partition function of a candidate.

    Parameters
    ----------
    mod : tvm.IRModule
        The whole module; PrimFuncs that the candidate calls are copied from it.
    graph : DataflowGraph
        Of ``mod["main"]``; the candidate's node set indexes it.
    candidate : Candidate
        Not an inline one.

    Returns
    -------
    tvm.IRModule
        ``main`` has the candidate's inputs as parameters, and its outputs as result.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> (native,) = resolve_targets(["llvm"])
    >>> mod = graph([(8,)], lambda emit, x: relax.op.abs(emit(relax.op.exp(x))))
    >>> alone = extract(mod, DataflowGraph.from_function(mod["main"]), Candidate(0b10, native))
    >>> sorted(var.name_hint for var in alone.get_global_vars())
    ['main', 'tvm_0']
    """
    inputs, outputs = boundary(graph, candidate.nodes)
    params = [relax.Var(f"p{i}", var.ty) for i, var in enumerate(inputs)]
    writer = _MainWriter(mod, graph, dict(zip(inputs, params, strict=True)))
    writer.emit_partition(candidate, f"{candidate.backend}_0")
    return writer.finish(params, outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))


def lower(mod: tvm.IRModule, graph: DataflowGraph, partitioning: Partitioning) -> tvm.IRModule:
    """Rewrite ``main`` so that every partition is a function of its own.

    Parameters
    ----------
    mod : tvm.IRModule
        A normalized module.
    graph : DataflowGraph
        Of ``mod["main"]``.
    partitioning : Partitioning
        A validated cover of the graph, in executable order.

    Returns
    -------
    tvm.IRModule
        External partitions carry ``Codegen`` and hold ``Composite`` functions, and
        ``collage.target`` where a target is not called as its backend is; native ones carry the
        attribute ``collage.backend``.

    Examples
    --------
    >>> from collage.search import make_partitioning
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> (native,) = resolve_targets(["llvm"])
    >>> mod = graph([(8,)], lambda emit, x: relax.op.abs(emit(relax.op.exp(x))))
    >>> dataflow = DataflowGraph.from_function(mod["main"])
    >>> apart = make_partitioning(dataflow, [Candidate(0b01, native), Candidate(0b10, native)])
    >>> sorted(var.name_hint for var in lower(mod, dataflow, apart).get_global_vars())
    ['main', 'tvm_0', 'tvm_1']
    """
    func = mod["main"]
    params = [relax.Var(p.name, p.ty) for p in func.params]
    writer = _MainWriter(mod, graph, dict(zip(func.params, params, strict=True)))
    names = {candidate.nodes: name for name, candidate in partition_names(partitioning).items()}
    for candidate in partitioning.candidates:
        if candidate.inline:
            writer.emit_inline(candidate)
        else:
            writer.emit_partition(candidate, names[candidate.nodes])
    return writer.finish(params, func.body.body)


def partition_names(partitioning: Partitioning) -> dict[str, Candidate]:
    """The name of each partition's function, in executable order; inline ones have none.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> native, onednn = resolve_targets(["llvm", "onednn"])
    >>> parts = [Candidate(0b001, native), Candidate(0b010, onednn), Candidate(0b100, native)]
    >>> list(partition_names(Partitioning(tuple(parts))))
    ['tvm_0', 'onednn_0', 'tvm_1']
    """
    names: dict[str, Candidate] = {}
    counts: dict[str, int] = {}
    for candidate in partitioning.candidates:
        if not candidate.inline:
            number = counts.get(candidate.backend, 0)
            counts[candidate.backend] = number + 1
            names[f"{candidate.backend}_{number}"] = candidate
    return names


def boundary(
    graph: DataflowGraph, nodes: int, within: int | None = None
) -> tuple[list[relax.Var], list[relax.Var]]:
    """The variables that enter a node set, in order of first use, and those that leave it.

    Parameters
    ----------
    graph : DataflowGraph
        Whose bindings the set holds.
    nodes : int
        Bit mask.
    within : int, optional
        The partition that it is a part of, if it is none itself.

    Returns
    -------
    inputs, outputs : list of relax.Var
        Of the graph's function.
    """
    whole = nodes if within is None else within
    inside = set()
    inputs: dict[relax.Var, None] = {}
    outputs: list[relax.Var] = []
    for index in bits(nodes & ~graph.idle(whole)):
        binding = graph.bindings[index]
        for var in reads(graph, index, whole):
            if var not in inside:
                inputs[var] = None
        inside.add(binding.var)
        if graph.is_output(index) or graph.users(index, whole) & ~nodes:
            outputs.append(binding.var)
    return list(inputs), outputs


def _renamed(expr: relax.Expr, names: Mapping[relax.Var, relax.Expr]) -> relax.Expr:
    """One binding's value over other variables."""
    return map_leaves(expr, lambda leaf: names[leaf] if isinstance(leaf, relax.Var) else leaf)


class _Region:
    """Builds the function of a node set: parameters, renamed bindings, result."""

    def __init__(
        self, inputs: Sequence[relax.Var], prefix: str, same: Mapping[relax.Var, relax.Var]
    ) -> None:
        self.params = [relax.Var(f"{prefix}{i}", var.ty) for i, var in enumerate(inputs)]
        self.mapping: dict[relax.Var, relax.Expr] = dict(zip(inputs, self.params, strict=True))
        self.same = same
        self.bindings: list[relax.VarBinding] = []

    def bind(self, var: relax.Var, value: relax.Expr) -> None:
        self.mapping[var] = self.fresh(value, var.ty)

    def take(self, graph: DataflowGraph, nodes: int, in_bytes: BytesOf | None = None) -> None:
        """Bind what a node set holds, its variables renamed; some of it computed in bytes."""
        for index in bits(nodes):
            binding = graph.bindings[index]
            value = map_leaves(binding.value, self.renamed)
            if in_bytes is not None:
                value = in_bytes.value(index, value, self.fresh)
            self.bind(binding.var, value)

    def renamed(self, leaf: relax.Expr) -> relax.Expr:
        """What a variable or constant of the graph is here."""
        return self.mapping[self.same.get(leaf, leaf)] if isinstance(leaf, relax.Var) else leaf

    def fresh(self, value: relax.Expr, ty: relax.Type) -> relax.Var:
        """A variable for what the graph has none for."""
        var = relax.Var(f"v{len(self.bindings)}", ty)
        self.bindings.append(relax.VarBinding(var, value))
        return var

    def call(self, function: relax.Function, args: Sequence[relax.Expr]) -> relax.Var:
        """The result of a composite function, which becomes a local one."""
        ty = relax.FuncType([p.ty for p in function.params], function.ret_ty)
        local = relax.Var(f"f{len(self.bindings)}", ty)
        self.bindings.append(relax.VarBinding(local, function))
        return self.fresh(relax.Call(local, list(args)), function.ret_ty)

    def function(self, outputs: Sequence[relax.Var], attrs: dict[str, object]) -> relax.Function:
        results = [self.mapping[var] for var in outputs]
        body = results[0] if len(results) == 1 else relax.Tuple(results)
        ret = results[0].ty if len(results) == 1 else relax.TupleType([r.ty for r in results])
        block = relax.BindingBlock(self.bindings)
        seq = relax.SeqExpr([block], body)
        return relax.Function(
            self.params, seq, ret, is_pure=True, attrs=tvm.ir.make_node("ir.DictAttrs", **attrs)
        )


class _MainWriter:
    """Writes ``main`` partition by partition."""

    def __init__(
        self, mod: tvm.IRModule, graph: DataflowGraph, mapping: dict[relax.Var, relax.Expr]
    ) -> None:
        self.mod = mod
        self.graph = graph
        self.mapping = mapping
        self.bindings: list[relax.VarBinding] = []
        self.functions: dict[relax.GlobalVar, relax.Function] = {}

    def _bind(self, name: str, value: relax.Expr, ty: relax.Type) -> relax.Var:
        var = relax.DataflowVar(name, ty)
        self.bindings.append(relax.VarBinding(var, value))
        return var

    def emit_inline(self, candidate: Candidate) -> None:
        for index in bits(candidate.nodes & ~self.graph.idle(candidate.nodes)):
            binding = self.graph.bindings[index]
            value = _renamed(binding.value, self.mapping)
            self.mapping[binding.var] = self._bind(f"h{index}", value, binding.var.ty)
        self._note_same(candidate)

    def _note_same(self, candidate: Candidate) -> None:
        """What has another one's value in a partition is that one outside, too."""
        for var, source in renamed(self.graph, candidate.nodes).items():
            if source in self.mapping:
                self.mapping[var] = self.mapping[source]

    def emit_partition(self, candidate: Candidate, name: str) -> None:
        inputs, outputs = boundary(self.graph, candidate.nodes)
        backend = candidate.target.implementation
        if isinstance(backend, ExternalBackend):
            function = _external_function(self.graph, candidate, inputs, outputs, name)
            if backend.aligned_weights:
                function = align_weights(function)
        else:
            region = _Region(inputs, "x", renamed(self.graph, candidate.nodes))
            region.take(self.graph, candidate.nodes & ~self.graph.idle(candidate.nodes))
            attrs: dict[str, object] = {PARTITION_ATTR: candidate.backend}
            if isinstance(backend, NativeBackend):
                attrs |= backend.partition_attributes(candidate.target.options)
            function = region.function(outputs, attrs)
            computed = candidate.nodes & ~self.graph.idle(candidate.nodes)
            if any(seam.mask & computed for seam in self.graph.seams):
                function = in_orders_of_borders(function)
        gvar = relax.GlobalVar(name)
        gvar_ty = relax.FuncType([p.ty for p in function.params], function.ret_ty)
        relax.expr._update_type(gvar, gvar_ty)
        self.functions[gvar] = function
        call = relax.Call(gvar, [self.mapping[var] for var in inputs])
        result = self._bind(f"{name}_out", call, function.ret_ty)
        if len(outputs) == 1:
            self.mapping[outputs[0]] = result
        else:
            for i, var in enumerate(outputs):
                item = relax.TupleGetItem(result, i)
                self.mapping[var] = self._bind(f"{name}_out{i}", item, var.ty)
        self._note_same(candidate)

    def finish(self, params: Sequence[relax.Var], body: relax.Expr) -> tvm.IRModule:
        value = _renamed(body, self.mapping)
        ty = _tuple_type(value) if isinstance(value, relax.Tuple) else value.ty
        result = relax.Var("result", ty)
        self.bindings.append(relax.VarBinding(result, value))
        seq = relax.SeqExpr([relax.DataflowBlock(self.bindings)], result)
        main = relax.Function(
            list(params),
            seq,
            result.ty,
            attrs=tvm.ir.make_node("ir.DictAttrs", global_symbol="main"),
        )
        functions = {relax.GlobalVar("main"): main, **self.functions}
        primitive = {g: f for g, f in self.mod.functions.items() if g.name_hint != "main"}
        module = relax.transform.Normalize()(tvm.IRModule({**primitive, **functions}))
        return relax.transform.DeadCodeElimination(["main"])(module)


def _tuple_type(value: relax.Tuple) -> relax.TupleType:
    return relax.TupleType([field.ty for field in value.fields])


def _external_function(
    graph: DataflowGraph,
    candidate: Candidate,
    inputs: Sequence[relax.Var],
    outputs: Sequence[relax.Var],
    name: str,
) -> relax.Function:
    same = renamed(graph, candidate.nodes)
    region = _Region(inputs, "x", same)
    in_bytes = BytesOf(graph, candidate)
    exact: dict[relax.Var, relax.Expr] = {}
    for var in inputs:
        _round(region, var, in_bytes, exact)
    for composite in candidate.composites:
        inner_inputs, inner_outputs = boundary(graph, composite.nodes, candidate.nodes)
        inner = _Region(inner_inputs, "c", same)
        inner.take(graph, composite.nodes, in_bytes)
        function = inner.function(inner_outputs, {"Composite": composite.name})
        args = [region.mapping[var] for var in inner_inputs]
        region.mapping[inner_outputs[0]] = region.call(function, args)
        _round(region, inner_outputs[0], in_bytes, exact)
    # Whoever is outside gets all digits.
    region.mapping |= exact
    target = candidate.target
    attrs: dict[str, object] = {"Codegen": target.backend, "global_symbol": name}
    if target.alias:
        attrs[TARGET_ATTR] = target.alias
    return region.function(outputs, attrs)


def _round(
    region: _Region, var: relax.Var, in_bytes: BytesOf, exact: dict[relax.Var, relax.Expr]
) -> None:
    """Let what stands behind read a value rounded, where it is to be."""
    steps = in_bytes.rounded.get(var)
    if steps is None:
        return
    exact[var] = region.mapping[var]
    inner = _Region([var], "c", {})
    inner.mapping[var] = rounding(inner.params[0], steps, inner.fresh)
    function = inner.function([var], {"Composite": in_bytes.composite})
    region.mapping[var] = region.call(function, [exact[var]])
