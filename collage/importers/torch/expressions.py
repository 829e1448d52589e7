"""Whether text in a program's file that PyTorch makes Python code of can do nothing but it should.

``torch.export.load`` hands sizes (``Mul(Integer(2), Symbol('s0'))``) to ``sympy.sympify``, which is
Python's ``eval``. A program's guards (``L['x'].size()[0] % 2 == 0``) become a function by ``exec``,
even where no dimension is open, and so does its graph, with names of inputs, keywords and weights
in it as they stand in the file (torch 2.13, ``torch/export/_unlift.py``, ``torch/fx/graph.py``).
"""

from __future__ import annotations

import ast
import json
import re

_MOST_CHARACTERS = 10_000

_FUNCTIONS = frozenset(
    [
        "Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Mod", "Abs", "Max", "Min",
        "And", "Or", "Not", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Equality", "Unequality",
        "StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan", "Piecewise",
        "ExprCondPair", "Tuple", "CeilDiv", "CeilToInt", "CleanDiv", "FloatPow", "FloatTrueDiv",
        "FloorDiv", "FloorToInt", "Identity", "IntTrueDiv", "LShift", "RShift", "ModularIndexing",
        "PowByNatural", "PythonMod", "RoundToInt", "ToFloat", "TruncToFloat", "TruncToInt",
        "Where", "floor", "ceiling", "int", "float", "len", "abs", "max",
        "min", "round",
    ]
)  # fmt: skip
"""Of sympy's and PyTorch's: numbers in, numbers out."""

_METHODS = frozenset(
    [
        "size", "stride", "storage_offset", "dim", "sym_max", "sym_min", "sym_float", "sym_int",
        "sym_ite", "sym_not", "ceil", "floor", "trunc",
    ]
)  # fmt: skip
"""Of tensors, of ``torch`` and of ``math``."""

_NAMES = re.compile(r"L|torch|math|oo|int_oo|true|false|[a-z]{1,3}\d+")
_TEXT = re.compile(r"[\w.]*")
_NUMBER = re.compile(r"-?[\d.]+(e[+-]\d+)?", re.ASCII)
"""As sympy writes one between quotes, ``Float('-1.0e-5', precision=53)``."""

_PATH = re.compile(r"[^\"'\\\x00-\x1f\x7f\u2028\u2029]*")
_ELSEWHERE = re.compile(r"[#\\\r\n\f]")
"""What may mean something else inside a line of code than it does alone."""

_HARMLESS = (
    *(ast.Expression, ast.Load, ast.UnaryOp, ast.UAdd, ast.USub, ast.Not, ast.BoolOp, ast.And),
    *(ast.Or, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.BinOp),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.Subscript),
    *(ast.Tuple, ast.keyword, ast.IfExp),
)


def is_name(text: object) -> bool:
    """Whether this is a name, alone.

    Examples
    --------
    >>> is_name("input_ids"), is_name("x=print()")
    (True, False)
    """
    return isinstance(text, str) and _TEXT.fullmatch(text) is not None


def is_path(text: object) -> bool:
    """Whether this is a name, or the path of a weight: it stands between quotes.

    Examples
    --------
    >>> is_path("layers.0.weight"), is_path('x"] + print() + ["')
    (True, False)
    """
    return isinstance(text, str) and _PATH.fullmatch(text) is not None


def has_plain_keywords(spec: object) -> bool:
    r"""Whether the structure of a program's arguments has names for keywords.

    Parameters
    ----------
    spec : object
        Should be the text of a tree, whose two children are those by position and by name.

    Examples
    --------
    >>> named = '{"type": "builtins.dict", "context": "[\\"x\\"]", "children_spec": []}'
    >>> has_plain_keywords(f'[1, {{"children_spec": [{named}, {named}]}}]')
    True
    """
    if spec == "":
        return True
    try:
        _, keywords = json.loads(str(spec))[1]["children_spec"]
        return all(map(is_name, json.loads(keywords["context"])))
    except (ValueError, TypeError, KeyError, IndexError):
        return False


def only_counts(text: object) -> bool:
    """Whether text is an expression of sizes: numbers, arithmetic, and functions of such.

    Parameters
    ----------
    text : object
        What stands in a file where PyTorch has such an expression.

    Examples
    --------
    >>> only_counts("Mul(Integer(2), Symbol('s39', positive=True, integer=True))")
    True
    >>> only_counts("(3*L['x'].size()[0]) % 2 == 0")
    True
    >>> only_counts("__import__('os').system('true')")
    False
    """
    if not isinstance(text, str) or len(text) > _MOST_CHARACTERS or _ELSEWHERE.search(text):
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    # What is called is looked at with the call.
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return all(_is_harmless(node, id(node) in called) for node in ast.walk(tree))


def _is_harmless(node: ast.AST, is_called: bool) -> bool:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return any(form.fullmatch(node.value) for form in (_TEXT, _NUMBER))
        return node.value is None or isinstance(node.value, int | float)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name | ast.Attribute)
    if isinstance(node, ast.Name):
        return node.id in _FUNCTIONS if is_called else _NAMES.fullmatch(node.id) is not None
    if isinstance(node, ast.Attribute):
        return is_called and node.attr in _METHODS
    return isinstance(node, _HARMLESS)
