"""What counts of a Python source: what it does, and what it imports.

Parsing a backend's sources takes up to half a second, and each process asks anew. So what was found
is kept in a folder, by the content of the source: nothing that was edited is ever taken for what it
was before, whatever its size and times say.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

import msgspec

from collage.backends.toolchain.artifact_cache import replacing

_MOST_KEPT = 2000
"""Sources; then those that were not asked for this time are dropped."""


class Import(msgspec.Struct, frozen=True, array_like=True):
    """One name of an import statement: how far up, the module, what is taken from it, if any."""

    level: int
    base: str
    name: str

    def within(self, package: str) -> tuple[str, str]:
        """The absolute name of the module, and the name that is taken from it, if any."""
        if not self.level:
            return self.base, self.name
        parts = package.split(".")
        parts = parts[: len(parts) - self.level + 1]
        return ".".join([*parts, *([self.base] if self.base else [])]), self.name


class SourceFacts(msgspec.Struct, frozen=True, array_like=True):
    """A digest without comments, docstrings and layout, and the imports, each once.

    Examples
    --------
    >>> facts = source_facts(b"from os import path  # Of the standard library.")
    >>> facts.imports
    (Import(level=0, base='os', name='path'),)
    >>> facts == source_facts(b"from os import path")
    True
    """

    digest: str
    imports: tuple[Import, ...]


class _Kept:
    """The facts in a file, by the content of the source."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._used: dict[str, SourceFacts] = {}
        self._changed = False
        try:
            self._known = msgspec.json.decode(path.read_bytes(), type=dict[str, SourceFacts])
        except (OSError, msgspec.DecodeError):
            self._known = {}  # None yet, or not ours: made again.

    def facts(self, data: bytes) -> SourceFacts:
        key = hashlib.sha256(data).hexdigest()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _facts(data)
            self._changed = True
        self._used[key] = found
        return found

    def write(self) -> None:
        if not self._changed:
            return
        kept = self._known if len(self._known) <= _MOST_KEPT else self._used
        # Where nothing can be written, the next process parses again.
        with contextlib.suppress(OSError), replacing(self._path) as partial:
            partial.write_bytes(msgspec.json.encode(kept))


_kept: ContextVar[_Kept | None] = ContextVar("kept", default=None)


@contextlib.contextmanager
def facts_kept_in(folder: Path) -> Iterator[None]:
    """While this is entered, facts are looked up in a folder of the cache, and added to it.

    Examples
    --------
    >>> with facts_kept_in(Path("cache")):
    ...     facts = source_facts(b"import os")
    >>> len(list(Path("cache/sources").iterdir()))
    1
    """
    # Another way to find them, or another Python's grammar, has a file of its own.
    way = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    kept = _Kept(folder / "sources" / f"{way}-{version}.json")
    token = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(token)
        kept.write()


def source_facts(data: bytes) -> SourceFacts:
    """The facts of a source, given its content."""
    kept = _kept.get()
    return _facts(data) if kept is None else kept.facts(data)


@functools.lru_cache(maxsize=1024)
def _facts(data: bytes) -> SourceFacts:
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError):  # No Python, such as a template of it.
        return SourceFacts(hashlib.sha256(data).hexdigest(), ())
    digest = hashlib.sha256()
    for part in _tokens(tree):
        digest.update(part.encode())
        digest.update(b"\0")
    return SourceFacts(digest.hexdigest(), tuple(dict.fromkeys(_imports(tree))))


def _imports(tree: ast.Module) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(0, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (Import(node.level, node.module or "", alias.name) for alias in node.names)


def _tokens(node: object) -> Iterator[str]:
    """A syntax tree as text that every version of Python gives alike: nothing for what is empty."""
    if isinstance(node, ast.AST):
        yield type(node).__name__
        for name, value in ast.iter_fields(node):
            if value is not None and value != [] and name not in ("ctx", "kind"):
                yield name
                yield from _tokens(value)
        yield ")"
    elif isinstance(node, list):
        for item in node:
            if not _is_text(item):
                yield from _tokens(item)
        yield "]"
    else:
        yield repr(node)


def _is_text(node: object) -> bool:
    """Whether a statement is a docstring, or text for readers elsewhere."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
