"""Public functions say what is raised, and those of two or more parameters what each is and gives.

So do classes of what they are made of, be it as parameters or as attributes. Read from the sources,
so that it needs no library. An override of a method whose parameters are documented inherits that
documentation and may say only what is different.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FOLDERS = ("backends", "collage", "cost", "search")
"""All product code."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """The syntax trees of all product code, by paths from the root."""
    # The other three are linked into collage.
    paths = [
        path.relative_to(ROOT)
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.resolve().is_relative_to(ROOT.resolve() / folder)
    ]
    return {path: ast.parse((ROOT / path).read_text(encoding="utf-8")) for path in paths}


@functools.cache
def classes() -> dict[str, list[ast.ClassDef]]:
    """All classes by their bare names, of which several may have the same."""
    found: dict[str, list[ast.ClassDef]] = {}
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


def sections(node: Function | ast.ClassDef) -> dict[str, str]:
    """The sections of a docstring by their titles."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", ast.get_docstring(node) or "", flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def named(section: str) -> set[str]:
    """What a section has entries of."""
    heads = re.findall(r"^([\w*][\w*, ]*?)(?: : .*)?$", section, re.M)
    return {name.strip().lstrip("*") for head in heads for name in head.split(",")}


def bases(node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """All classes that a class may inherit from, told by their bare names."""
    seen, todo = {id(node)}, [node]
    while todo:
        for base in todo.pop().bases:
            plain = base.value if isinstance(base, ast.Subscript) else base
            for one in classes().get(ast.unparse(plain).rpartition(".")[2], []):
                if id(one) not in seen:
                    seen.add(id(one))
                    todo.append(one)
                    yield one


def inherits(function: Function, owner: ast.ClassDef | None, title: str) -> bool:
    """Whether a method overrides one that has a section of that title."""
    return owner is not None and any(
        isinstance(member, Function) and member.name == function.name and title in sections(member)
        for base in bases(owner)
        for member in base.body
    )


def public(
    body: list[ast.stmt], owner: ast.ClassDef | None = None
) -> Iterator[tuple[Function, ast.ClassDef | None]]:
    """Functions and methods with no underscore in front, but for tests, methods of suites."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public(node.body, node)
        elif isinstance(node, Function) and not node.name.startswith("_"):
            if owner is None or not node.name.startswith("test_"):
                yield node, owner
        elif isinstance(node, ast.If | ast.Try):
            yield from public(node.body, owner)


def raises(function: Function) -> bool:
    """Whether a function's own body raises an error of its making."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Raise) and node.exc is not None:
            return True
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)
    return False


def parameters(function: Function, owner: ast.ClassDef | None) -> list[str]:
    """Names of the parameters that a caller gives."""
    args = function.args
    names = [arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    decorators = {ast.unparse(one) for one in function.decorator_list}
    if decorators & {"overload", "typing.overload"}:
        return []
    names += [arg.arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return names[1:] if owner is not None and "staticmethod" not in decorators else names


def lacks(function: Function, owner: ast.ClassDef | None) -> list[str]:
    """What a function's docstring does not say; empty when it needs to say nothing more."""
    names, said = parameters(function, owner), sections(function)
    missing = []
    if len(names) > 1 and not inherits(function, owner, "Parameters"):
        described = named(said.get("Parameters", ""))
        missing += [f"the parameter {name}" for name in names if name not in described]
        missing += [f"a parameter {name} to describe" for name in sorted(described - {*names})]
        result = "None" if function.returns is None else ast.unparse(function.returns)
        if result not in ("None", "Never", "NoReturn") and not {"Returns", "Yields"} & said.keys():
            missing.append("Returns")
    if raises(function) and "Raises" not in said and not inherits(function, owner, "Raises"):
        missing.append("Raises")
    return missing


def empty(node: Function | ast.ClassDef) -> list[str]:
    """Entries of a docstring's sections that describe nothing, such as an error but not when.

    Attributes may be left to their names and types.
    """
    said = sections(node)
    texts = "\n".join(
        said.get(title, "") for title in ("Parameters", "Returns", "Yields", "Raises")
    )
    return re.findall(r"^(\S.*)$(?!\n+ )", texts, re.M)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_entry_is_left_without_a_description(folder: str) -> None:
    found = [
        f"{path}:{node.lineno} {node.name} says nothing of {', '.join(bare)}"
        for path, tree in trees().items()
        if path.is_relative_to(folder)
        for node in ast.walk(tree)
        if isinstance(node, Function | ast.ClassDef) and (bare := empty(node))
    ]
    assert not found, "\n".join(found)


_MAKING = ("__init__", "__post_init__")


def unexplained(owner: ast.ClassDef) -> list[str]:
    """What neither a class nor one that it inherits from says: what it is made of, and raises."""
    made = [one for one in owner.body if isinstance(one, Function) and one.name in _MAKING]
    said = [sections(one) for one in (owner, *bases(owner))]
    missing = []
    names = [name for one in made for name in parameters(one, owner)]
    if len(names) > 1:
        titles = ("Parameters", "Attributes")
        entries = [named(one.get(title, "")) for one in said for title in titles]
        missing += [name for name in names if not any(name in entry for entry in entries)]
    if any(map(raises, made)) and not any("Raises" in one for one in said):
        missing.append("Raises")
    return missing


@pytest.mark.parametrize("folder", FOLDERS)
def test_classes_say_what_they_are_made_of(folder: str) -> None:
    found = [
        f"{path}:{node.lineno} {node.name} lacks {', '.join(missing)}"
        for path, tree in trees().items()
        if path.is_relative_to(folder)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        if (missing := unexplained(node))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", FOLDERS)
def test_says_what_it_takes_gives_and_raises(folder: str) -> None:
    found = [
        f"{path}:{function.lineno} {function.name} lacks {', '.join(missing)}"
        for path, tree in trees().items()
        if path.is_relative_to(folder)
        for function, owner in public(tree.body)
        if (missing := lacks(function, owner))
    ]
    assert not found, "\n".join(found)


def lacking(source: str) -> list[str]:
    """What the last function of a source text lacks."""
    *_, (function, owner) = public(ast.parse(source).body)
    return lacks(function, owner)


def test_each_gap_is_named() -> None:
    bare = "def f(a, b) -> int:\n    '''It.'''\n    raise ValueError(a)"
    assert lacking(bare) == ["the parameter a", "the parameter b", "Returns", "Raises"]
    told = 'def f(a, b) -> None:\n    """It.\n\n    Parameters\n    ---\n    a, b : int\n    """'
    assert lacking(told) == []
    assert lacking("def f(a) -> int: ...") == []
    assert lacking("def f(a) -> int: raise ValueError(a)") == ["Raises"]
    assert lacking(told.replace("(a, b)", "(a, c)")) == [
        "the parameter c",
        "a parameter b to describe",
    ]
    # Words alone on a line of a description are no entry.
    assert "the parameter b" in lacking(told.replace("a, b : int", "a : int\n        b"))


def test_an_entry_without_a_description_is_found() -> None:
    told = "Returns\n    ---\n    int\n        A size.\n\n    Raises\n    ---\n    E\n    "
    source = f'def f():\n    """It.\n\n    {told}"""'
    (function,) = ast.parse(source).body
    assert isinstance(function, Function)
    assert empty(function) == ["E"]


def test_what_a_class_is_made_of_may_be_described_by_another() -> None:
    source = "class C:\n    def __init__(self, a, b): ..."
    (bare,) = ast.parse(source).body
    assert isinstance(bare, ast.ClassDef)
    assert unexplained(bare) == ["a", "b"]
    (checked,) = ast.parse("class C:\n    def __post_init__(self): raise ValueError(0)").body
    assert isinstance(checked, ast.ClassDef)
    assert unexplained(checked) == ["Raises"]
    source = "class C(RefusalError):\n    def __init__(self, symbol, b): ..."
    (derived,) = ast.parse(source).body
    assert isinstance(derived, ast.ClassDef)
    assert unexplained(derived) == ["b"]
