"""How a model's tensors lie in what it is called with and what it gives back.

Compiled code takes tensors and gives tensors, one beside the other. Models take and give dicts,
tuples, nested ones, None and plain values among them. The difference is kept here as plain data
that a manifest can hold: no class of the model's own is needed to call it.
"""

from __future__ import annotations

from collections import Counter, namedtuple
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import msgspec

from collage.backends.contract.errors import InputError
from collage.state import StateTensor

SIGNATURE_VERSION = 1


class Leaf(msgspec.Struct, frozen=True, tag="tensor"):
    """A tensor, by its place among all."""

    index: int


class Fixed(msgspec.Struct, frozen=True, tag="fixed"):
    """A value that is the same in every call: None, or a number or text."""

    value: bool | int | float | str | None


class FixedTensor(msgspec.Struct, frozen=True):
    """An input whose integers decided what was compiled.

    Attributes
    ----------
    input : int
        Which one.
    values : tuple of int
        What it holds in every call, row by row; truth values as 0 and 1.

    Examples
    --------
    >>> FixedTensor(1, (1, 4, 4)).values
    (1, 4, 4)
    """

    input: int
    values: tuple[int, ...]


class Written(msgspec.Struct, frozen=True):
    """An input that the model writes into.

    Attributes
    ----------
    input, output : int
        Which one, and which output has what it holds afterwards.

    Examples
    --------
    >>> Written(input=1, output=2).output
    2
    """

    input: int
    output: int


class Items(msgspec.Struct, frozen=True, tag="items"):
    """A tuple or a list."""

    kind: Literal["tuple", "list"]
    children: tuple[Structure, ...]


class Fields(msgspec.Struct, frozen=True, tag="fields"):
    """A dict, or a named tuple called ``name``; also what has fields of other kinds."""

    kind: Literal["dict", "named_tuple"]
    keys: tuple[str | int, ...]
    children: tuple[Structure, ...]
    name: str = ""


Structure: TypeAlias = Leaf | Fixed | Items | Fields


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is called with, and what it gives back.

    Attributes
    ----------
    names : tuple of str
        Of the parameters, in the order of a positional call.
    parameters : tuple of Structure
        One for each name.
    result : Structure
        What the model gives.
    positional : int or None
        How many of the names, from the first on, may be given by position; None, as in earlier
        bundles, is all.
    optional : tuple of str or None
        Which may be left out, since that means what was compiled in; None, as in earlier bundles,
        is all that hold no tensor.
    state : tuple of StateTensor
        What the model keeps from one call to the next: tensors behind those of parameters and
        results.
    written : tuple of Written
        Inputs that the model writes into; their outputs are behind those of the result.
    fixed : tuple of FixedTensor
        Tensors that are the same in every call.
    version : int
        See ``SIGNATURE_VERSION``.

    Examples
    --------
    >>> batch = Fields("dict", ("ids", "mask"), (Leaf(0), Fixed(None)))
    >>> both = Fields("dict", ("scores", "cache"), (Leaf(1), Items("tuple", (Leaf(0),))))
    >>> signature = Signature(names=("batch",), parameters=(batch,), result=both)
    >>> signature.arguments([{"ids": 7, "mask": None}], {})
    [7]
    >>> signature.returned([1, 2])
    {'scores': 2, 'cache': (1,)}
    >>> signature.output_names()
    ['cache.0', 'scores']
    """

    names: tuple[str, ...]
    parameters: tuple[Structure, ...]
    result: Structure
    positional: int | None = None
    optional: tuple[str, ...] | None = None
    state: tuple[StateTensor, ...] = ()
    written: tuple[Written, ...] = ()
    fixed: tuple[FixedTensor, ...] = ()
    version: int = SIGNATURE_VERSION

    def arguments(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The tensors of a call, in their order.

        Parameters
        ----------
        args, named
            As the model is called.

        Returns
        -------
        list of object
            The leaves of all parameters' structures.

        Raises
        ------
        InputError
            What is missing, unknown, given twice, or of another structure.
        """
        most = len(self.names) if self.positional is None else self.positional
        by_name = ["*", *self.names[most:]] if most < len(self.names) else []
        takes = f"the model takes {', '.join([*self.names[:most], *by_name]) or 'nothing'}"
        if len(args) > most:
            how = " by position" if by_name else ""
            raise InputError(f"{len(args)} inputs given{how}; {takes}", value=len(args))
        if unknown := [name for name in named if name not in self.names]:
            raise InputError(f"unknown input '{unknown[0]}'; {takes}", value=unknown)
        given = dict(zip(self.names, args, strict=False))
        if twice := [name for name in named if name in given]:
            raise InputError(f"input '{twice[0]}' is given twice", value=twice[0])
        given.update(named)
        found: dict[int, Any] = {}
        for name, structure in zip(self.names, self.parameters, strict=True):
            if name in given:
                found.update(_leaves(structure, given[name], name))
            elif not self._may_be_missing(name, structure):
                raise InputError(f"input '{name}' is missing; {takes}", value=name)
        return [found[index] for index in range(len(found))]

    def _may_be_missing(self, name: str, structure: Structure) -> bool:
        if self.optional is None:
            return not any(_tensors(structure))
        return name in self.optional

    def returned(self, tensors: Sequence[Any]) -> Any:
        """What the model gives, with these tensors in it."""
        return _filled(self.result, tensors)

    def input_names(self) -> dict[int, str]:
        """The parameters' tensors by their places, each by where it lies: ``batch.ids``."""
        pairs = zip(self.names, self.parameters, strict=True)
        return dict(one for name, tree in pairs for one in _paths(tree, name))

    def output_names(self) -> list[str]:
        """A name for each result, by where it lies: ``scores``, ``cache.0``; what has no key
        of its own is ``output_0`` and so on; behind them inputs that are written, and the state."""
        top = self.result
        if isinstance(top, Leaf):
            paths = [(top.index, "output_0")]
        elif isinstance(top, Fixed):
            paths = []
        else:
            keys = top.keys if isinstance(top, Fields) else range(len(top.children))
            roots = [key if isinstance(key, str) else f"output_{key}" for key in keys]
            paths = [
                found
                for root, child in zip(roots, top.children, strict=True)
                for found in _paths(child, root)
            ]
        names = [path for _, path in sorted(paths)]
        inputs = self.input_names() if self.written else {}
        names += [inputs[one.input] for one in self.written]
        return _distinct([*names, *(kept.name for kept in self.state)])


def _leaves(structure: Structure, value: Any, path: str) -> Iterator[tuple[int, Any]]:
    """The tensors in a value that is to have a structure, with their places."""
    if isinstance(structure, Leaf):
        yield structure.index, value
    elif isinstance(structure, Fixed):
        if type(value) is not type(structure.value) or value != structure.value:
            raise InputError(
                f"input '{path}' is {structure.value!r} ever since the model was exported, not "
                f"{_shown(value)}",
                value=path,
            )
    elif isinstance(structure, Items):
        is_one = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        if not is_one or len(value) != len(structure.children):
            raise InputError(
                f"input '{path}' must be a {structure.kind} of {len(structure.children)}, not "
                f"{_shown(value)}",
                value=path,
            )
        for index, child in enumerate(structure.children):
            yield from _leaves(child, value[index], f"{path}.{index}")
    else:
        children = _by_key(structure, value, path)
        for key, child in zip(structure.keys, structure.children, strict=True):
            yield from _leaves(child, children[key], f"{path}.{key}")


def _by_key(structure: Fields, value: Any, path: str) -> Mapping[Any, Any]:
    """What a dict, a named tuple or an object with attributes holds."""
    keys = ", ".join(map(str, structure.keys))
    if not isinstance(value, Mapping):
        attributes = {key: str(key) for key in structure.keys}
        if not all(hasattr(value, name) for name in attributes.values()):
            what = "named tuple" if structure.kind == "named_tuple" else "dict"
            raise InputError(
                f"input '{path}' must be a {what} with {keys}, not {_shown(value)}", value=path
            )
        return {key: getattr(value, name) for key, name in attributes.items()}
    for key in structure.keys:
        if key not in value:
            raise InputError(
                f"input '{path}.{key}' is missing: '{path}' has the keys {keys}", value=key
            )
    if unknown := [key for key in value if key not in structure.keys]:
        raise InputError(
            f"input '{path}' has the keys {keys}, and no '{unknown[0]}'", value=unknown[0]
        )
    return value


def _filled(structure: Structure, tensors: Sequence[Any]) -> Any:
    if isinstance(structure, Leaf):
        return tensors[structure.index]
    if isinstance(structure, Fixed):
        return structure.value
    children = [_filled(child, tensors) for child in structure.children]
    if isinstance(structure, Items):
        return children if structure.kind == "list" else tuple(children)
    if structure.kind == "dict":
        return dict(zip(structure.keys, children, strict=True))
    return _named_tuple(structure.name, structure.keys)(*children)


@lru_cache(maxsize=64)
def _named_tuple(name: str, keys: tuple[str | int, ...]) -> Any:
    return namedtuple(name, list(map(str, keys)))


def _tensors(structure: Structure) -> Iterator[Leaf]:
    if isinstance(structure, Leaf):
        yield structure
    elif not isinstance(structure, Fixed):
        for child in structure.children:
            yield from _tensors(child)


def _paths(structure: Structure, path: str) -> Iterator[tuple[int, str]]:
    if isinstance(structure, Leaf):
        yield structure.index, path
    elif not isinstance(structure, Fixed):
        keys = structure.keys if isinstance(structure, Fields) else range(len(structure.children))
        for key, child in zip(keys, structure.children, strict=True):
            yield from _paths(child, f"{path}.{key}")


def _distinct(names: Sequence[str]) -> list[str]:
    """The names with a number where one was there before."""
    seen: Counter[str] = Counter()
    taken = set(names)
    result = []
    for name in names:
        new = name
        while seen[name] and new in taken:
            new = f"{name}_{seen[name]}"
            seen[name] += 1
        seen[name] += 1
        taken.add(new)
        result.append(new)
    return result


def _shown(value: Any) -> str:
    if isinstance(value, None | bool | int | float | str):
        return repr(value)
    size = f" of {len(value)}" if isinstance(value, list | tuple) else ""
    return f"a {type(value).__name__}{size}"
