"""What TVM's ``FuseOps`` would group, asked of ``FuseOps`` itself.

The pass works on legalized programs. It is run here on a stand-in: one empty PrimFunc per binding
that carries the binding's operator kind, called in the same dataflow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import networkx as nx
import tvm
from tvm import relax

from collage.search.byoc import program_positions
from collage.search.dataflow import DataflowGraph, OpKind, bits
from collage.search.partitioning import quotient

_PROXY = re.compile(r"collage_proxy_(\d+)$")
# FuseOps reads tuple items as injective and leaves everything else that is no kernel alone.
_FUSION_KIND = {OpKind.TUPLE: OpKind.OPAQUE, OpKind.HOST: OpKind.OPAQUE}


def fuse_ops_groups(graph: DataflowGraph, taken: Sequence[int] = ()) -> list[int]:
    """The groups ``FuseOps`` makes of a graph, single operators included.

    Parameters
    ----------
    graph : DataflowGraph
        What is to be fused.
    taken : sequence of int
        Disjoint bit masks of bindings that are compiled elsewhere, each as one opaque call; their
        quotient has no cycle.

    Returns
    -------
    list of int
        Disjoint bit masks that cover what is not taken, by their first binding.
    """
    claimed = 0
    for block in taken:
        claimed |= block
    blocks = [*taken, *(1 << index for index in bits(graph.all_nodes & ~claimed))]
    mod = _stand_in(graph, blocks, len(taken))
    fused = relax.transform.FuseOps()(mod)
    groups = []
    for function in fused.functions.values():
        if (
            isinstance(function, relax.Function)
            and function.attrs
            and "Primitive" in function.attrs
        ):
            group = sum(blocks[number] for number in _proxies(function))
            groups.append(_without_foreign_items(graph, group))
    groups = [group for group in groups if group]
    grouped = sum(groups)
    groups += [block for block in blocks[len(taken) :] if not block & grouped]
    return sorted(groups, key=lambda block: block & -block)


def _without_foreign_items(graph: DataflowGraph, group: int) -> int:
    """The group without items of tuples that are made outside: a function takes tensors only.

    ``FuseOps`` would pass the tuple in; taking it apart in ``main`` costs nothing.
    """
    items = (i for i in bits(group) if graph.op_name(i) == "tuple_get_item")
    return group & ~sum(1 << i for i in items if graph.preds(i) & ~group)


def _stand_in(graph: DataflowGraph, blocks: Sequence[int], num_taken: int) -> tvm.IRModule:
    between = quotient(graph, blocks)
    # Where two kernels compete for an operator, FuseOps lets the first of the program have it.
    position = program_positions(graph)
    last = [max(position[index] for index in bits(block)) for block in blocks]
    order = list(nx.lexicographical_topological_sort(between, key=lambda n: last[n]))
    # Shapes play no part in fusion.
    some_type = relax.TensorType((1,), "float32")
    source = relax.Var("source", some_type)
    builder = relax.BlockBuilder()
    values: dict[int, relax.Expr] = {}
    results = []
    with builder.function("main", [source]):
        with builder.dataflow():
            for number in order:
                opaque = number < num_taken
                kind = OpKind.OPAQUE if opaque else _kind(graph, blocks[number])
                callee = builder.add_func(_empty_kernel(kind, number), f"collage_proxy_{number}")
                used = [values[other] for other in sorted(between.predecessors(number))]
                call = relax.call_tir(callee, used or [source], out_ty=some_type)
                if blocks[number] & graph.outputs:
                    values[number] = builder.emit_output(call)
                    results.append(values[number])
                else:
                    values[number] = builder.emit(call)
        builder.emit_func_output(relax.Tuple(results))
    return builder.get()


def _kind(graph: DataflowGraph, block: int) -> OpKind:
    index = block.bit_length() - 1
    if graph.op_name(index) == "tuple_get_item":
        return OpKind.INJECTIVE
    kind = graph.op_kind(index)
    return _FUSION_KIND.get(kind, kind)


def _empty_kernel(kind: OpKind, number: int) -> tvm.tirx.PrimFunc:
    body = tvm.tirx.Evaluate(tvm.tirx.const(0, "int32"))
    # The number keeps the builder from taking equal functions for one.
    attrs = {"op_pattern": int(kind), "collage_proxy": number}
    return tvm.tirx.PrimFunc([], body).with_attr(attrs)


def _proxies(function: relax.Function) -> list[int]:
    found = []
    for block in function.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call) and binding.value.args:
                callee = binding.value.args[0]
                match = _PROXY.match(getattr(callee, "name_hint", ""))
                if match:
                    found.append(int(match.group(1)))
    return found
