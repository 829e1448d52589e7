"""Where tensors may have another layout: conversions that undo each other, before each reader.

Nothing is computed otherwise: a search decides whether a partition's border runs between the two
conversions of a tensor (:mod:`collage.search.layouts`), and those of all others vanish.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import tvm
from tvm import relax

from collage.backends.relax.static_shape import tensor_shape
from collage.passes.channels_last_orders import Axes, channels_first, channels_last
from collage.rewrite import map_leaves
from collage.search.bindings import used_vars
from collage.search.dataflow import DataflowGraph, OpKind, bits
from collage.search.layouts import LayoutGraph, SeamVars

_RANK = 4
"""Of what has two layouts to choose from: a batch of pictures."""

_LEAST_ELEMENTS = 4096
"""Of a tensor, below which converting takes less than calling a partition."""

_ABSORBED = (OpKind.ELEMWISE, OpKind.BROADCAST)


def with_seams(
    mod: tvm.IRModule, graph: DataflowGraph, *, last: bool = False
) -> tuple[tvm.IRModule, DataflowGraph]:
    """Put both conversions before each reader of tensors whose layout may matter at a border.

    Parameters
    ----------
    mod : tvm.IRModule
        Normalized.
    graph : DataflowGraph
        Of its ``main``.
    last : bool
        Whether its pictures have their channels last.

    Returns
    -------
    mod : tvm.IRModule
        Computes the same.
    graph : DataflowGraph
        Of its ``main``; the given one where there is no such tensor.

    Examples
    --------
    >>> from collage.testing import constant, graph
    >>> def build(emit, x):
    ...     y = emit(relax.op.nn.conv2d(x, constant(8, 8, 3, 3), padding=1))
    ...     return relax.op.nn.softmax(y, axis=1)
    >>> mod = graph([(1, 8, 32, 32)], build)
    >>> _, dataflow = with_seams(mod, DataflowGraph.from_function(mod["main"]))
    >>> [dataflow.op_name(index) for index in range(len(dataflow))]
    ['nn.conv2d', 'permute_dims', 'permute_dims', 'nn.softmax']
    """
    chosen = {
        graph.bindings[index].var for index in range(len(graph)) if _matters(graph, index, last)
    }
    if not chosen or not any(_is_picture_work(graph, index) for index in range(len(graph))):
        return mod, graph
    writer = _Writer(chosen, last)
    for binding in graph.bindings:
        writer.take(binding)
    main = mod["main"]
    block = relax.DataflowBlock(writer.bindings)
    body = relax.SeqExpr([block], main.body.body)
    turned = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    others = {gvar: f for gvar, f in mod.functions.items() if gvar.name_hint != "main"}
    made = tvm.IRModule({**others, mod.get_global_var("main"): turned}, attrs=mod.attrs)
    return made, LayoutGraph.between(graph, made, writer.seams())


class _Writer:
    """Writes bindings one by one, with conversions between them."""

    def __init__(self, chosen: set[relax.Var], last: bool) -> None:
        orders = channels_last(_RANK), channels_first(_RANK)
        self._orders = orders[::-1] if last else orders
        self.bindings: list[relax.Binding] = []
        self._chosen = chosen
        self._made: dict[relax.Var, list[tuple[relax.Var, relax.Var]]] = {}

    def take(self, binding: relax.Binding) -> None:
        """A binding of the old function, that reads what was converted back for it."""
        own: dict[relax.Var, relax.Var] = {}
        for var in used_vars(binding.value):
            if var in self._chosen and var not in own:
                made = self._made.setdefault(var, [])
                there = self._converted(var, f"{var.name}_there{len(made)}", self._orders[0])
                own[var] = self._converted(there, f"{var.name}_back{len(made)}", self._orders[1])
                made.append((there, own[var]))
        self.bindings.append(_reading(binding, own) if own else binding)

    def _converted(self, var: relax.Var, name: str, axes: Axes) -> relax.Var:
        value = relax.BlockBuilder().normalize(relax.op.permute_dims(var, list(axes)))
        made = relax.DataflowVar(name, value.ty)
        self.bindings.append(relax.VarBinding(made, value))
        return made

    def seams(self) -> list[SeamVars]:
        """What was put in."""
        return [(var, tuple(made)) for var, made in self._made.items()]


def _reading(binding: relax.Binding, names: Mapping[relax.Var, relax.Var]) -> relax.Binding:
    """A binding that reads other variables; its own is the same."""
    value = map_leaves(binding.value, lambda leaf: names.get(leaf, leaf))
    if value.ty.is_missing():
        relax.expr._update_type(value, binding.var.ty)
    return relax.VarBinding(binding.var, value)


def _is_picture_work(graph: DataflowGraph, index: int) -> bool:
    return graph.op_name(index).startswith("nn.conv2d")


def _matters(graph: DataflowGraph, index: int, last: bool) -> bool:
    """Whether a tensor is a picture that a partition may end with."""
    shape = tensor_shape(graph.bindings[index].var)
    if shape is None or len(shape) != _RANK or graph.is_output(index) or not graph.succs(index):
        return False
    if graph.op_kind(index) in (OpKind.HOST, OpKind.TUPLE):
        return False
    channels = shape[-1] if last else shape[1]
    if channels in (1, math.prod(shape[1:])) or math.prod(shape) < _LEAST_ELEMENTS:
        return False
    users = list(bits(graph.succs(index)))
    # What nobody but an elementwise operator reads is computed along with that.
    return not (
        len(users) == 1
        and graph.op_kind(users[0]) in _ABSORBED
        and graph.preds(users[0]) == 1 << index
    )
