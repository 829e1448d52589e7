"""Branches that write only where a mask holds, taken whether it holds anywhere or not.

``if inside.any(): y[inside] = f(x[inside])`` asks what tensors hold to spare itself the work, not
to compute something else: where the mask holds nowhere, nothing is written.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_COUNTS = frozenset(["sum", "count_nonzero"])


def writes_only_where_asked(node: ast.If, function: ast.AST) -> bool:
    """Whether a branch does nothing where the mask that it asks for holds nowhere.

    Parameters
    ----------
    node : ast.If
        The branch.
    function : ast.AST
        What it stands in: names that it gives may be read nowhere else there.

    Returns
    -------
    bool
        False as well where nothing is known.

    Examples
    --------
    >>> def asked(text):
    ...     tree = ast.parse(text)
    ...     return writes_only_where_asked(tree.body[0], tree)
    >>> asked("if torch.any(m):\\n    y[m] = f(x[m])"), asked("if m.any():\\n    y = f(y)\\ny")
    (True, False)
    """
    mask = _asked_for(node.test)
    if mask is None or node.orelse:
        return False
    given = set(_names_given(node.body))
    if given & {one.id for one in ast.walk(mask) if isinstance(one, ast.Name)}:
        return False  # It is another mask behind that.
    inside = set(map(id, ast.walk(node)))
    read = (
        one.id
        for one in ast.walk(function)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and id(one) not in inside
    )
    return given.isdisjoint(read) and _writes_by(node.body, ast.dump(mask))


def _asked_for(test: ast.expr) -> ast.expr | None:
    """The mask of ``mask.any()``, ``torch.any(mask)`` and ``mask.sum() > 0``."""
    if isinstance(test, ast.Compare):
        match test:
            case ast.Compare(ops=[ast.Gt()], comparators=[ast.Constant(value=0)]):
                return _only_argument(test.left, _COUNTS)
        return None
    return _only_argument(test, frozenset(["any"]))


def _only_argument(call: ast.expr, names: frozenset[str]) -> ast.expr | None:
    """What a function of one of these names is asked of, as a function or a method."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    if call.func.attr == "item" and not call.args:
        return _only_argument(call.func.value, names)
    if call.func.attr not in names or call.keywords:
        return None
    of_torch = isinstance(call.func.value, ast.Name) and call.func.value.id == "torch"
    given = [*call.args] if of_torch else [call.func.value, *call.args]
    return given[0] if len(given) == 1 and _is_plain(given[0]) else None


def _is_plain(value: ast.expr) -> bool:
    """Whether an expression is the same each time that it is read."""
    while isinstance(value, ast.Attribute):
        value = value.value
    return isinstance(value, ast.Name)


def _names_given(body: list[ast.stmt]) -> Iterator[str]:
    for each in body:
        for one in ast.walk(each):
            if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load):
                yield one.id


def _writes_by(body: list[ast.stmt], mask: str) -> bool:
    return all(_statement_writes_by(each, mask) for each in body)


def _statement_writes_by(statement: ast.stmt, mask: str) -> bool:
    match statement:
        case ast.Assign(targets=targets):
            return all(_is_by(target, mask) for target in targets)
        case ast.AugAssign(target=ast.Subscript() as target):
            return _is_by(target, mask)
        case ast.If():
            return _writes_by(statement.body, mask) and _writes_by(statement.orelse, mask)
        case ast.Pass():
            return True
    return False


def _is_by(target: ast.expr, mask: str) -> bool:
    """Whether what is assigned to is a name, or places where the mask holds."""
    match target:
        case ast.Name():
            return True
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(_is_by(part, mask) for part in parts)
        case ast.Subscript(slice=ast.Tuple(elts=places)):
            return any(ast.dump(place) == mask for place in places)
        case ast.Subscript(slice=place):
            return ast.dump(place) == mask
    return False
