"""Which stages of a fused kernel are folded into the stages that read them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, Op, TensorLoad, Var

from collage.backends.tvm.common.blocks import Axis, axes_of, root_blocks, size_of

_LEVELS = {
    **dict.fromkeys(("exp", "log", "sigmoid", "tanh", "erf", "pow"), 2),
    **dict.fromkeys(("sin", "cos"), 3),
    **dict.fromkeys(("tan", "asin", "acos", "atan", "atan2"), 6),
    **dict.fromkeys(("sinh", "cosh", "asinh", "acosh", "atanh"), 6),
}
"""What functions weigh where one is the argument of another."""

_MOST_LEVELS = 6
"""TVM's code generation puts the value of each ``let`` in place of its variable to learn about it,
so that its time is exponential in the levels of polynomials (``cpu/fast_math.py``): three sigmoids
take 0.06 s, four 1.5 s, five more than a minute."""

_PRODUCTS = frozenset({0.5, *(sign * n for n in range(1, 9) for sign in (1.0, -1.0))})
"""Powers that are a root or a few products; any other is a logarithm and its power of two."""

_MOST_COPIES = 32
"""Loads that a stage may have where a reader's several loads of it are each replaced by it: a chain
of activations that read their operand twice would double with each (eight of them took more than a
minute to compile)."""


def inline_stages(sch: s_tir.Schedule, kept: Set[str] = frozenset()) -> None:
    """Inline elementwise stages, but not ``kept`` ones, where that repeats no expensive work.

    Parameters
    ----------
    sch : s_tir.Schedule
        Changed in place.
    kept : set of str
        Names of stages that stay.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((8,), "float32", name="x")
    >>> y = te.compute((8,), lambda i: x[i] + 1, name="y")
    >>> z = te.compute((8,), lambda i: y[i] * 2, name="z")
    >>> sch = s_tir.Schedule(te.create_prim_func([x, z]))
    >>> inline_stages(sch)
    >>> [sch.get(block).name_hint for block in root_blocks(sch)]
    ['z']
    """
    outputs = {sch.get(block).name_hint for block in sch.get_output_blocks("root")}
    for block in root_blocks(sch):
        name = sch.get(block).name_hint
        if name not in outputs and name not in kept and _worth_inlining(sch, block):
            sch.compute_inline(block)
    # TVM's rfactor fails where a stage beside the reduction has no loop.
    for block in root_blocks(sch):
        if not sch.get_loops(block):
            sch.add_unit_loop(block)


def _worth_inlining(sch: s_tir.Schedule, block: Any) -> bool:
    """Whether folding a stage into its readers saves memory traffic without repeating much work."""
    stmt = sch.get(block)
    axes = axes_of(sch, block)
    if axes is None or any(axis.reduce for axis in axes):
        return False
    if not is_elementwise(stmt) and not _is_of_rank_0(stmt):
        return False
    consumers = list(sch.get_consumers(block))
    if not consumers or multiplies(sch, block):
        return False
    reads = 0
    levels, buffer = _levels(stmt.body), stmt.writes[0].source
    for consumer in consumers:
        consumer_axes = axes_of(sch, consumer)
        if consumer_axes is None:
            return False
        if levels and _levels(sch.get(consumer).body, buffer, levels) > _MOST_LEVELS:
            return False
        reads += size_of(consumer_axes)
    produced = max(size_of(axes), 1)
    return reads <= produced or not _is_expensive(stmt)


def multiplies(sch: s_tir.Schedule, block: Any) -> bool:
    """Whether inlining a stage makes a reader of it much longer, for it loads it several times.

    Parameters
    ----------
    sch : s_tir.Schedule
        Nothing in it is changed.
    block : SBlockRV
        A stage that stores one element at a time.

    Returns
    -------
    bool
        True where the copies together would have more loads than may be repeated.
    """
    stmt = sch.get(block)
    loads = len(_loads(stmt.body))
    buffer = stmt.writes[0].source
    copies = [
        sum(load.source.same_as(buffer) for load in _loads(sch.get(consumer).body))
        for consumer in sch.get_consumers(block)
    ]
    return any(number > 1 and number * loads > _MOST_COPIES for number in copies)


def _loads(node: Any) -> list[TensorLoad]:
    found = list[TensorLoad]()
    tvm_ffi.structural_walk(node, [(TensorLoad, found.append)])
    return found


def _levels(node: Any, buffer: Any = None, of_buffer: int = 0) -> int:
    """How deep functions are nested, where what is read of a buffer is nested so deep itself."""
    calls = list[Call]()
    found = 0

    def load(one: TensorLoad) -> None:
        nonlocal found
        if buffer is not None and one.source.same_as(buffer):
            found = of_buffer

    tvm_ffi.structural_walk(node, [(Call, calls.append), (TensorLoad, load)])
    for call in calls:
        level = _level(call)
        if level:
            found = max([found, *(level + _levels(arg, buffer, of_buffer) for arg in call.args)])
    return found


def _level(call: Call) -> int:
    if not isinstance(call.op, Op):
        return 0
    name = str(call.op.name).rpartition(".")[2]
    if name == "pow" and getattr(call.args[1], "value", None) not in _PRODUCTS:
        return _MOST_LEVELS
    return _LEVELS.get(name, 0)


def is_elementwise(stmt: Any) -> bool:
    """One store at an index made of the block's own variables, each once, in order."""
    body = stmt.body
    if stmt.init is not None or not isinstance(body, tirx.BufferStore) or len(stmt.writes) != 1:
        return False
    variables = [iter_var.var for iter_var in stmt.iter_vars]
    return len(body.indices) == len(variables) and all(
        isinstance(index, tirx.IntImm) or index.same_as(var)
        for index, var in zip(body.indices, variables, strict=True)
    )


def _is_of_rank_0(stmt: Any) -> bool:
    """One store of a scalar that is computed from others."""
    body = stmt.body
    return stmt.init is None and isinstance(body, tirx.BufferStore) and not body.indices


def reads_in_order(stmt: Any, axes: Sequence[Axis], buffer: Any) -> bool:
    """Whether a stage reads a buffer at its own place only.

    Parameters
    ----------
    stmt : SBlock
        The stage.
    axes : sequence of Axis
        Its axes.
    buffer : tirx.Buffer
        What another stage writes.

    Returns
    -------
    bool
        True too where the stage does not read the buffer at all.
    """
    variables = [iter_var.var for iter_var in stmt.iter_vars]
    return all(
        len(region.region) == len(variables)
        and all(
            r.min.same_as(var) or (axis.extent == 1 and isinstance(r.min, tirx.IntImm))
            for r, var, axis in zip(region.region, variables, axes, strict=True)
        )
        for region in stmt.reads
        if region.source.same_as(buffer)
    )


def _is_expensive(stmt: Any) -> bool:
    """Whether a stage does more than a few additions and multiplications per element."""
    expensive = (Call, tirx.Div, tirx.FloorDiv, tirx.FloorMod)
    return tvm_ffi.structural_walk(stmt.body, [(expensive, _interrupt)]) is not None


def has_branches(stmt: Any) -> bool:
    """Whether an element is chosen by a condition, as in padding."""

    def check(call: Call) -> tvm_ffi.VisitInterrupt | None:
        is_branch = isinstance(call.op, Op) and str(call.op.name).endswith(".if_then_else")
        return tvm_ffi.VisitInterrupt() if is_branch else None

    return tvm_ffi.structural_walk(stmt.body, [(Call, check)]) is not None


def chosen_by(stmt: Any) -> set[Any]:
    """The variables in conditions that elements are chosen by, as operands of a concatenation are.

    Parameters
    ----------
    stmt : SBlock
        A stage.

    Returns
    -------
    set of tirx.Var
        A loop over one of them alone leaves the condition outside of those within it.
    """
    found: set[Any] = set()

    def check(call: Call) -> None:
        if isinstance(call.op, Op) and str(call.op.name).endswith(".if_then_else"):
            tvm_ffi.structural_walk(call.args[0], [(Var, found.add)])

    tvm_ffi.structural_walk(stmt.body, [(Call, check)])
    return found


def reads_indices(stmt: Any) -> bool:
    """Whether a stage reads 64-bit integers, as gathers do, or makes some of floats, as resizing.

    TVM narrows loop variables to 32 bits but not those, and then fails on a loop that has to be cut
    into whole vectors and a remainder.
    """
    if any(str(region.source.dtype) == "int64" for region in stmt.reads):
        return True

    def check(cast: tirx.Cast) -> tvm_ffi.VisitInterrupt | None:
        made = str(cast.ty) == "int64" and "float" in str(cast.value.ty)
        return tvm_ffi.VisitInterrupt() if made else None

    return tvm_ffi.structural_walk(stmt.body, [(tirx.Cast, check)]) is not None


def _interrupt(_: object) -> tvm_ffi.VisitInterrupt:
    return tvm_ffi.VisitInterrupt()
