"""Which candidates are the same work at another place of a graph, told without extracting them.

A network of thousands of operators is a few blocks, over and over. To extract a candidate and make
it canonical takes milliseconds, to see that it is one of those known already microseconds.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import relax

from collage.cost.workload.canonical import inline_digest, keeps_integers
from collage.cost.workload.data import DataSpec, data_spec
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits

Likeness = Hashable
"""Equal for candidates whose extracted modules are equal up to names and the weights' content."""


@dataclass(frozen=True)
class _Form:
    """A binding without what it reads: ``number`` is that of its operator, attributes and types.

    ``reads`` are, in order of appearance, indices of bindings, or variables and constants from
    elsewhere; each with the number of its type, for a constant of all that a workload keeps of it.
    """

    number: int
    reads: tuple[tuple[Hashable, int], ...]


class Likenesses:
    """Tells the :data:`Likeness` of a graph's candidates.

    Parameters
    ----------
    graph : DataflowGraph
        Made from a function.
    weights : dict
        Descriptions of constants; gets those of new ones.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> (tvm,) = resolve_targets(["llvm"])
    >>> exp = relax.op.exp
    >>> mod = graph([(8,)], lambda emit, x: emit(relax.op.abs(emit(exp(emit(exp(x)))))))
    >>> likenesses = Likenesses(DataflowGraph.from_function(mod["main"]), {})
    >>> first, second, third = [likenesses.of(Candidate(1 << index, tvm)) for index in range(3)]
    >>> first == second, second == third
    (True, False)
    """

    def __init__(self, graph: DataflowGraph, weights: dict[tvm.ir.GenericConst, DataSpec]) -> None:
        self._graph = graph
        self._weights = weights
        self._forms: dict[int, _Form] = {}
        self._numbers: dict[Hashable, int] = {}
        self._structures: dict[int, list[tuple[object, int]]] = {}
        self._constants: dict[tuple[tvm.ir.GenericConst, bool], int] = {}

    def of(self, candidate: Candidate) -> Likeness:
        """What the candidate has in common with those that are the same work."""
        nodes = candidate.nodes
        place: dict[Hashable, int] = {}
        outside: dict[Hashable, int] = {}
        text: list[int] = []
        aliases = self._graph.aliases(nodes)
        for index in bits(nodes & ~self._graph.idle(nodes)):
            form = self._form(index)
            text.append(form.number)
            for read, kind in form.reads:
                what = aliases.get(read, read) if isinstance(read, int) else read
                if what in place:
                    text.append(-1 - place[what])
                else:
                    text += (outside.setdefault(what, len(outside)), kind)
            place[index] = len(place)
            users = self._graph.users(index, nodes)
            text.append(bool(users & ~nodes or self._graph.is_output(index)))
        composites = tuple(
            (one.name, *(place[index] for index in bits(one.nodes))) for one in candidate.composites
        )
        return candidate.target, tuple(text), composites

    def of_binding(self, index: int) -> int:
        """The same for bindings that compute the same, whatever they read."""
        return self._form(index).number

    def _form(self, index: int) -> _Form:
        if index not in self._forms:
            binding = self._graph.bindings[index]
            reads: list[tuple[Hashable, int]] = []
            shape = self._shape(binding.value, reads)
            whole = type(binding).__name__, shape, self._structure(binding.var.ty)
            self._forms[index] = _Form(self._number(whole), tuple(reads))
        return self._forms[index]

    def _shape(
        self, expr: relax.Expr, reads: list[tuple[Hashable, int]], *, stays: bool = False
    ) -> Hashable:
        """An expression without its leaves, which are appended to ``reads``."""
        match expr:
            case relax.Var():
                index = self._graph.find(expr)
                reads.append((expr if index is None else index, self._structure(expr.ty)))
                return "read"
            case tvm.ir.GenericConst():
                reads.append((expr, self._constant(expr, stays=stays)))
                return "read"
            case relax.Call():
                about = (self._callee(expr.op), *map(self._structure, (expr.attrs, expr.ty)))
                types = tuple(map(self._structure, expr.ty_args))
                stays = keeps_integers(expr)
                args = tuple(self._shape(arg, reads, stays=stays) for arg in expr.args)
                return (*about, types, args)
            case relax.Tuple():
                return "tuple", tuple(self._shape(field, reads) for field in expr.fields)
            case relax.TupleGetItem():
                return "item", expr.index, self._shape(expr.tuple_value, reads)
            case relax.Function() | relax.If() | relax.SeqExpr():
                # What they read is not looked at: they are like nothing else.
                return self._number(object())
            case _:
                return self._structure(expr)

    def _callee(self, op: relax.Expr) -> Hashable:
        match op:
            case tvm.ir.Op():
                return "op", str(op.name)
            case tvm.ir.GlobalVar():
                return "global", str(op.name_hint)
            case _:
                return self._structure(op)

    def _constant(self, constant: tvm.ir.GenericConst, *, stays: bool) -> int:
        if (constant, stays) not in self._constants:
            digest = inline_digest(constant, stays=stays)
            kept = data_spec(constant, self._weights).range_key if digest is None else digest
            self._constants[constant, stays] = self._number((self._structure(constant.ty), kept))
        return self._constants[constant, stays]

    def _structure(self, thing: object) -> int:
        """The same number for what is structurally equal."""
        same_hash = self._structures.setdefault(tvm_ffi.structural_hash(thing), [])
        for known, number in same_hash:
            if tvm_ffi.structural_equal(known, thing):
                return number
        number = self._number(object())
        same_hash.append((thing, number))
        return number

    def _number(self, thing: Hashable) -> int:
        return self._numbers.setdefault(thing, len(self._numbers))
