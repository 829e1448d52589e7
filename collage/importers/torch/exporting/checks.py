"""Checks of what tensors hold, in a module's code: traced as they run where they pass.

``if x.min() < 0: raise ValueError`` and ``assert mask.any()`` are branches on what tensors hold,
which nobody knows who traces them. One side of each ends in an error, or does nothing but warn:
what a module computes is on the other. Branches that only write where a mask holds are taken, too.
"""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeGuard

import torch

from collage.importers.torch.exporting.followed import unbacked_symbols
from collage.importers.torch.exporting.only_where import writes_only_where_asked

_OWN = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent)

_SAYS = frozenset(["print", "warn", "warning", "warning_once", "info", "info_once", "debug"])
"""Functions that only tell somebody something."""

_ASKS_FOR_OTHERS = "_assert"
"""PyTorch's function that asks what a tensor holds for whoever calls it."""


@contextmanager
def passing_checks() -> Iterator[None]:
    """Checks pass as long as this lasts, wherever nobody knows what the tensors hold.

    Yields
    ------
    None
        Meanwhile; afterwards a warning names the lines of those that were passed.

    Examples
    --------
    >>> with passing_checks():
    ...     bool(torch.ones(()))
    True
    """
    passed: dict[str, None] = {}

    def answering(own: Callable[[Any], bool], unknown: Callable[[Any], bool]) -> Any:
        @functools.wraps(own)
        def answer(value: Any) -> bool:
            found = _answer_of_check(sys._getframe(1)) if unknown(value) else None
            if found is None:
                return own(value)
            if found[0]:
                passed[found[0]] = None
            return found[1]

        return answer

    with ExitStack() as stack:
        for kind, unknown in ((torch.Tensor, _is_traced), (torch.SymBool, _is_read)):
            own = kind.__bool__
            stack.callback(setattr, kind, "__bool__", own)
            kind.__bool__ = answering(own, unknown)
        yield
    if passed:
        warnings.warn(
            f"what is checked at {', '.join(passed)} is left out: the network asks what its "
            "tensors hold, and is compiled as it runs where nothing is wrong with that",
            stacklevel=4,
        )


def _is_read(number: torch.SymBool) -> bool:
    """Whether a truth value follows from numbers that were read from tensors."""
    return bool(unbacked_symbols(number))


def _is_traced(tensor: torch.Tensor) -> bool:
    """Whether nobody knows what a tensor holds."""
    from torch._subclasses.fake_tensor import FakeTensor

    while (inner := getattr(tensor, "_local_tensor", None)) is not None:
        tensor = inner
    return isinstance(tensor, FakeTensor) and tensor.constant is None


def _answer_of_check(frame: FrameType | None) -> tuple[str, bool] | None:
    """Where a truth value is asked for by a check, and with which value the check passes; no place
    where nothing else is computed for it."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(_TORCH) and code.co_name != _ASKS_FOR_OTHERS:
            return None  # PyTorch asks while it traces an operator.
        if not code.co_filename.startswith(_OWN):
            wanted = _wanted(frame)
            place = f"{code.co_filename}:{frame.f_lineno}"
            return wanted and (place if wanted[1] else "", wanted[0])
        frame = frame.f_back
    return None


def _wanted(frame: FrameType) -> tuple[bool, bool] | None:
    """What the expression that is evaluated has to be for the check that it belongs to, and whether
    that leaves something out."""
    checks = _checks_of(frame.f_code.co_filename)
    around = [one for one in checks if one[0].lineno <= frame.f_lineno <= _end(one[0])[0]]
    if not around:
        return None
    # A jump of an assertion stands for all of it, and what computed its operand for that alone.
    for line, _, column, _ in reversed(list(_positions_up_to(frame))):
        for test, passes, leaves_out in around:
            place = (line or 0, column or 0)
            if (test.lineno, test.col_offset) <= place < _end(test):
                leaf = _leaf(test, passes, place)
                return None if leaf is None else (leaf, leaves_out)
        if line != frame.f_lineno:
            break
    return None


def _positions_up_to(frame: FrameType) -> Iterator[tuple[int | None, ...]]:
    return itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2 + 1)


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _leaf(test: ast.expr, wanted: bool, place: tuple[int, int]) -> bool | None:
    """What the part of a test at a place has to be; None where others decide along with it."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _leaf(test.operand, not wanted, place)
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            if (part.lineno, part.col_offset) <= place < _end(part):
                return _leaf(part, wanted, place)
        return wanted
    if isinstance(test, ast.NamedExpr):
        return _leaf(test.value, wanted, place)
    return wanted


@functools.lru_cache(maxsize=64)
def _checks_of(filename: str) -> tuple[tuple[ast.expr, bool, bool], ...]:
    """The tests of a file's checks, whether each has to hold, and whether it is left out then."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return ()
    found: list[tuple[ast.expr, bool, bool]] = []
    for node, function in _with_functions(tree, tree):
        if isinstance(node, ast.Assert):
            found.append((node.test, True, True))
        elif isinstance(node, ast.If) and _leaves(node):
            found.append((node.test, False, True))
        elif isinstance(node, ast.If) and node.orelse and _raises(node.orelse):
            found.append((node.test, True, True))
        elif isinstance(node, ast.If) and writes_only_where_asked(node, function):
            found.append((node.test, True, False))
    return tuple(found)


def _with_functions(node: ast.AST, function: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Every node, with the function that it stands in."""
    for child in ast.iter_child_nodes(node):
        yield child, function
        inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _with_functions(child, child if inner else function)


def _raises(body: list[ast.stmt]) -> bool:
    return isinstance(body[-1], ast.Raise)


def _leaves(node: ast.If) -> bool:
    """Whether nothing is computed: an error is raised, or somebody told something."""
    told = (each.value.func for each in node.body if _is_call(each))
    only_tells = not node.orelse and all(map(_is_call, node.body))
    return _raises(node.body) or (only_tells and all(map(_says, told)))


def _is_call(statement: ast.stmt) -> TypeGuard[Any]:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)


def _says(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else None
    return (function.id if isinstance(function, ast.Name) else name) in _SAYS
