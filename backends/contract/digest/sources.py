"""A digest of the sources that decide what a backend builds: a changed kernel is another backend.

Records are keyed by it, so whatever it leaves out could give a wrong answer. It covers

- all of the package that the backend's class stands in, templates included;
- the modules that those import, step by step, as far as they belong to the backend (to its
  top-level package or its distribution) or are tools of ours that make code;
- :mod:`collage.backends.compile`, by which every library is made, with what it imports;
- files that the backend names itself, and its ``codegen_version``.

Comments, docstrings and layout of Python sources do not count, nor does where they are installed.
Libraries that a backend uses count by their versions, which its probe gives.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from collage.backends.contract.digest.source_facts import SourceFacts, source_facts
from collage.backends.contract.errors import TargetError

_OURS = "collage.backends"
_COMPILER = f"{_OURS}.compile"
_DECIDING_NOTHING = (f"{_OURS}.contract", f"{_OURS}.storage")
"""Packages of ours that hold words and records: they decide nothing about generated code."""


def source_digest(kind: type, version: str, files: Iterable[Path] = ()) -> str:
    """The digest of what a backend's libraries are made by.

    Parameters
    ----------
    kind : type
        The backend's class.
    version : str
        Its ``codegen_version``.
    files : iterable of Path
        What neither its package nor its imports lead to.

    Returns
    -------
    str
        Sixteen hexadecimal digits.

    Raises
    ------
    TargetError
        When the class was not read from a file.

    Examples
    --------
    >>> from collage.backends.contract.registry import get_backend
    >>> kind = type(get_backend("tvm"))
    >>> len(source_digest(kind, "1")), source_digest(kind, "1") == source_digest(kind, "2")
    (16, False)
    """
    path = _file_of(kind.__module__)
    if path is None:
        raise TargetError(
            f"backend class {kind.__qualname__} stands in no file: what is measured with it could "
            "not be told from what another version gives",
            value=kind,
        )
    closure = _Closure(kind.__module__, path)
    found = closure.files() | {file.name: file for file in files}
    parts = (f"{name} {closure.digest(file)}" for name, file in sorted(found.items()))
    return hashlib.sha256("\n".join([version, *parts]).encode()).hexdigest()[:16]


class _Closure:
    """A module, its package, and what they import that may be followed."""

    def __init__(self, module: str, path: Path) -> None:
        self._module, self._path = module, path
        parts = module.split(".")
        self._unit = ".".join(parts[: 2 if parts[0] == "collage" else 1])
        # Asked of every distribution here, and only third parties have modules in several places.
        foreign = parts[0] != "collage"
        self._distributions = metadata.packages_distributions() if foreign else {}
        self._files: dict[str, Path | None] = {}
        self._facts: dict[Path, SourceFacts] = {}

    def digest(self, path: Path) -> str:
        """What counts of a file."""
        if path.suffix == ".py":
            return self._facts_of(path).digest
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def _facts_of(self, path: Path) -> SourceFacts:
        if path not in self._facts:
            self._facts[path] = source_facts(path.read_bytes())
        return self._facts[path]

    def files(self) -> dict[str, Path]:
        """By names that say nothing of where they are installed."""
        found: dict[str, Path] = {}
        searched: set[Path] = set()
        pending = [(self._module, self._path), *self._package()]
        pending += [(_COMPILER, path) for path in [_file_of(_COMPILER)] if path]
        while pending:
            name, path = pending.pop()
            if name in found:
                continue
            found[name] = path
            if path.suffix == ".py":
                package = name if path.name == "__init__.py" else name.rpartition(".")[0]
                pending += self._imported(path, package)
                if package and path.parent not in searched:
                    searched.add(path.parent)
                    found.update(_data(path.parent, package))
        return found

    def _package(self) -> Iterator[tuple[str, Path]]:
        """Every module of the package that the class stands in."""
        folder = self._path.parent
        package = getattr(sys.modules[self._module], "__package__", None)
        if package and (folder / "__init__.py").is_file():
            for path in folder.rglob("*.py"):
                inner = path.relative_to(folder).with_suffix("").parts
                names = inner[:-1] if inner[-1] == "__init__" else inner
                yield ".".join((package, *names)), path

    def _imported(self, path: Path, package: str) -> Iterator[tuple[str, Path]]:
        for imported in self._facts_of(path).imports:
            base, name = imported.within(package)
            inner = f"{base}.{name}" if name else base
            # What is imported from a package may be a module of its own.
            for module in (inner, base):
                if (file := self._followed(module)) is not None:
                    yield module, file
                    break
            if not base.startswith(f"{_OURS}."):
                parents = base.split(".")
                for module in (".".join(parents[:end]) for end in range(1, len(parents))):
                    if (file := self._followed(module)) is not None:
                        yield module, file

    def _followed(self, module: str) -> Path | None:
        """The file of a module that belongs to the backend or makes code."""
        if module not in self._files:
            self._files[module] = _file_of(module) if self._follows(module) else None
        return self._files[module]

    def _follows(self, module: str) -> bool:
        if _within(module, _OURS):
            return not any(_within(module, package) for package in _DECIDING_NOTHING)
        top = module.partition(".")[0]
        if _within(module, self._unit):
            return True
        if top == "collage" or top in sys.stdlib_module_names or not self._distributions:
            return False
        own, other = (self._distributions.get(name) for name in (self._unit, top))
        if other is not None:
            return own is not None and not set(own).isdisjoint(other)
        return _root(top) == _root(self._unit)


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _file_of(module: str) -> Path | None:
    """The file of a module, whether it was imported or not."""
    loaded = sys.modules.get(module)
    place = getattr(loaded, "__file__", None)
    if loaded is None:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError, AttributeError):
            spec = None
        place = spec.origin if spec is not None and spec.has_location else None
    return Path(place) if place else None


def _root(top: str) -> Path | None:
    """The folder that a top-level module is found in."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return None
    locations = list(spec.submodule_search_locations or ())
    place = locations[0] if locations else spec.origin
    return Path(place).parent if place else None


def _data(folder: Path, package: str) -> dict[str, Path]:
    """What lies beside a package's modules, and below in folders without modules."""
    found: dict[str, Path] = {}
    for path in folder.iterdir():
        if path.name.startswith((".", "__pycache__")) or path.suffix in (".py", ".pyc"):
            continue
        if path.is_file():
            found[f"{package}/{path.name}"] = path
        elif not any(path.glob("*.py")):
            found.update(_data(path, f"{package}/{path.name}"))
    return found
