"""The dataflow graph of one function: bindings by post-dfs index, edges from definition to use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import tvm
from tvm import relax

from collage.backends.contract.errors import SearchError
from collage.search.bindings import op_kind, op_name, post_dfs, used_vars
from collage.search.op_kinds import OpKind
from collage.search.seam import Seam

__all__ = ["DataflowGraph", "OpKind", "bits", "mask_key"]

_STEPS = 64
"""Of a rule, between two looks at whether it is to go on; each takes some ten microseconds."""


def bits(mask: int) -> Iterator[int]:
    """The indices in a bit mask, ascending.

    Examples
    --------
    >>> list(bits(0b10110))
    [1, 2, 4]
    """
    # What belongs together stands together: most masks are a few digits behind many zeros.
    start = (mask & -mask).bit_length() - 1
    mask >>= max(0, start)
    while mask:
        low = mask & -mask
        yield start + low.bit_length() - 1
        mask ^= low


def mask_key(mask: int) -> tuple[int, int]:
    """A bit mask as a key of large dictionaries.

    Python's hash of an ``int`` is its remainder by 2^61 - 1, so masks of the same shape 61 bindings
    apart have the same one, and a dictionary of those of a large graph is as slow as a list.

    Examples
    --------
    >>> hash(0b11 << 61) == hash(0b11), hash(mask_key(0b11 << 61)) == hash(mask_key(0b11))
    (True, False)
    """
    return mask.bit_length(), mask


class DataflowGraph:
    """Bindings of a function's one dataflow block, numbered in post-dfs order from its outputs.

    The numbering is topological and depends on nothing but the function. Bindings that no output
    needs are left out. Node sets are ``int`` bit masks: bit ``i`` stands for binding ``i``.

    Build one with :meth:`from_function`, or with :meth:`from_uses` where there is no function.

    Parameters
    ----------
    bindings : tuple of relax.Binding
        In the order of their numbers; empty where there is no function.
    uses : tuple of tuple of int
        By binding, the earlier ones that it uses.
    outputs : int
        Bit mask of the bindings whose values are returned.
    kinds : tuple of OpKind
        By binding.
    op_names : tuple of str
        By binding, without ``relax.``.
    function : relax.Function, optional
        What it was made from.

    Examples
    --------
    >>> from collage.testing import graph
    >>> from tvm.relax import op
    >>> mod = graph([(1, 8)], lambda emit, x: op.add(emit(op.exp(x)), x))
    >>> dataflow = DataflowGraph.from_function(mod["main"])
    >>> [dataflow.op_name(index) for index in range(len(dataflow))]
    ['exp', 'add']
    >>> list(bits(dataflow.preds(1))), dataflow.is_output(1)
    ([0], True)
    """

    def __init__(
        self,
        bindings: tuple[relax.Binding, ...],
        uses: tuple[tuple[int, ...], ...],
        outputs: int,
        kinds: tuple[OpKind, ...],
        op_names: tuple[str, ...],
        function: relax.Function | None = None,
    ) -> None:
        self.bindings = bindings
        self.function = function
        """The function it was made from."""
        self.memo: dict[tuple[str, str], object] = {}
        """What rules found out about this graph and want to keep as long as it lives."""
        self._check: Callable[[], None] | None = None
        self._steps = 0
        self.outputs = outputs
        """Bit mask of the bindings whose values the function returns."""
        self._kinds = kinds
        self._op_names = op_names
        size = len(op_names)
        preds, succs = [0] * size, [0] * size
        for user, used in enumerate(uses):
            for index in used:
                preds[user] |= 1 << index
                succs[index] |= 1 << user
        self._preds, self._succs = tuple(preds), tuple(succs)
        # Transitive closures; the numbering is topological, so one sweep each way is enough.
        above, below = [0] * size, [0] * size
        for i in range(size):
            for j in bits(preds[i]):
                above[i] |= above[j] | 1 << j
        for i in reversed(range(size)):
            for j in bits(succs[i]):
                below[i] |= below[j] | 1 << j
        self._ancestors, self._descendants = tuple(above), tuple(below)
        self._index = {binding.var: index for index, binding in enumerate(bindings)}

    @classmethod
    def from_function(cls, func: relax.Function, mod: tvm.IRModule | None = None) -> DataflowGraph:
        """Read the graph off a function in canonical form.

        Parameters
        ----------
        func : relax.Function
            A-normal form, with at most one (dataflow) block.
        mod : tvm.IRModule, optional
            Where ``func`` stands: tells the kinds of the PrimFuncs that it calls, if they are
            annotated (``op_pattern``); without it they count as opaque.

        Returns
        -------
        DataflowGraph
            Its nodes are the bindings of the function's one block, in their order.

        Raises
        ------
        SearchError
            When the body is not a sequence of at most one dataflow block.
        """
        body = func.body
        if not isinstance(body, relax.SeqExpr):
            raise SearchError("the function is not in A-normal form", value=type(body).__name__)
        if len(body.blocks) > 1:
            raise SearchError(
                f"the function has {len(body.blocks)} binding blocks; only one dataflow block can "
                "be partitioned",
                value=len(body.blocks),
            )
        block = list(body.blocks[0].bindings) if body.blocks else []
        if body.blocks and not isinstance(body.blocks[0], relax.DataflowBlock):
            raise SearchError("the function's bindings are not in a dataflow block", value=block)
        by_var = {binding.var: binding for binding in block}
        results = [v for v in used_vars(body.body) if v in by_var]
        order = post_dfs(results, by_var)
        index = {binding.var: i for i, binding in enumerate(order)}
        names = tuple(op_name(binding) for binding in order)
        return cls(
            bindings=tuple(order),
            uses=tuple(
                tuple(index[v] for v in used_vars(binding.value) if v in index) for binding in order
            ),
            outputs=sum(1 << index[v] for v in dict.fromkeys(results)),
            kinds=tuple(
                op_kind(binding, name, mod) for binding, name in zip(order, names, strict=True)
            ),
            op_names=names,
            function=func,
        )

    @classmethod
    def from_uses(cls, uses: Sequence[Sequence[int]]) -> DataflowGraph:
        """A graph with no function behind it, to try a search on a table of costs.

        Parameters
        ----------
        uses : sequence of sequence of int
            By binding, the earlier ones that it uses. What nobody uses is an output.
        """
        used = {index for row in uses for index in row}
        return cls(
            bindings=(),
            uses=tuple(tuple(row) for row in uses),
            outputs=sum(1 << i for i in range(len(uses)) if i not in used),
            kinds=(OpKind.ELEMWISE,) * len(uses),
            op_names=tuple(f"op{i}" for i in range(len(uses))),
        )

    @contextmanager
    def checked(self, check: Callable[[], None]) -> Iterator[None]:
        """While this lasts, rules call something now and then, which ends them when it raises."""
        self._check = check
        try:
            check()
            yield
        finally:
            self._check = None

    def step(self) -> None:
        """Rules that go over a graph, or over candidates, call this each time around."""
        self._steps += 1
        if self._check is not None and self._steps % _STEPS == 0:
            self._check()

    def __len__(self) -> int:
        return len(self._op_names)

    @property
    def all_nodes(self) -> int:
        """Bit mask of every binding."""
        return (1 << len(self)) - 1

    def op_name(self, index: int) -> str:
        """The operator of a binding.

        For example ``nn.conv2d``, ``tuple``, ``tuple_get_item``, ``call_tir:<PrimFunc>``,
        ``call_dps_packed:<symbol>``, ``call:<function>``, ``constant``, ``shape``, ``match_cast``.
        """
        return self._op_names[index]

    def op_kind(self, index: int) -> OpKind:
        """The operator's kind, as TVM's fusion sees it."""
        return self._kinds[index]

    def preds(self, index: int) -> int:
        """Bit mask of the bindings that this one uses."""
        return self._preds[index]

    def succs(self, index: int) -> int:
        """Bit mask of the bindings that use this one."""
        return self._succs[index]

    def ancestors(self, index: int) -> int:
        """Bit mask of everything this binding depends on, itself not included."""
        return self._ancestors[index]

    def descendants(self, index: int) -> int:
        """Bit mask of everything that depends on this binding, itself not included."""
        return self._descendants[index]

    @property
    def plain(self) -> DataflowGraph:
        """The graph that rules find candidates in: this one, unless conversions were put between
        its bindings, see :class:`~collage.search.layouts.LayoutGraph`."""
        return self

    seams: tuple[Seam, ...] = ()
    """Tensors that may have another layout at partition borders."""

    def aliases(self, nodes: int) -> Mapping[int, int]:
        """Bindings of a partition that have the value of another binding there, and of which."""
        return {}

    def idle(self, nodes: int) -> int:
        """Bit mask of the bindings that a partition has, and need not compute."""
        return 0

    def users(self, index: int, nodes: int) -> int:
        """What uses a binding's value where some bindings are one partition.

        Parameters
        ----------
        index : int
            The binding.
        nodes : int
            Bit mask of the partition.

        Returns
        -------
        int
            Bit mask, in the partition and outside.
        """
        return self.succs(index)

    def is_output(self, index: int) -> bool:
        """Whether the function returns this binding's value, alone or in a tuple."""
        return bool(self.outputs >> index & 1)

    def index_of(self, var: relax.Var) -> int:
        """The index of the binding that defines a variable.

        Raises
        ------
        SearchError
            When no binding of this graph does.
        """
        if var not in self._index:
            raise SearchError(f"'{var.name}' is not bound in this graph", value=str(var.name))
        return self._index[var]

    def find(self, var: relax.Var) -> int | None:
        """As :meth:`index_of`, but None for parameters and other variables from elsewhere."""
        return self._index.get(var)
