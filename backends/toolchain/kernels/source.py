"""CUDA sources as TVM writes them, and the PTX that comes of them, taken apart into kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_KERNEL = re.compile(r'^extern "C" __global__ ', re.MULTILINE)
_NAME = re.compile(r"(\w+)\s*\([^()]*\)\s*$")
_SHARED_FUNCTION = re.compile(r"^(?=(?:__host__ )?__device__ )", re.MULTILINE)
_ENTRY = re.compile(r"^[ \t]*\.visible \.entry (\w+)\(.*?^}\n?", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(
    r"^[ \t]*(?:\.\w+ )*(?:\.func\b(?:[^;{]*;|.*?^})|\.(?:global|const|shared)\b[^;]*;)",
    re.MULTILINE | re.DOTALL,
)
_COMMENT = re.compile(r"^[ \t]*//.*\n|^[ \t]*\n", re.MULTILINE)


@dataclass(frozen=True)
class Kernel:
    """One kernel of a source.

    Attributes
    ----------
    name : str
        Of the function.
    code : str
        Its definition.
    """

    name: str
    code: str


@dataclass(frozen=True)
class Source:
    """A source, taken apart.

    Attributes
    ----------
    prelude : str
        What comes before the first kernel; no function of it is seen from outside.
    kernels : tuple of Kernel
        Each defined once.

    Examples
    --------
    >>> code = '__device__ int one() { return 1; }\\nextern "C" __global__ void f(int* x);\\n'
    >>> code += 'extern "C" __global__ void f(int* x) {\\n  x[0] = one();\\n}\\n'
    >>> source = Source.of(code)
    >>> [kernel.name for kernel in source.kernels], source.prelude
    (['f'], 'static __device__ int one() { return 1; }\\n')
    """

    prelude: str
    kernels: tuple[Kernel, ...]

    @classmethod
    def of(cls, code: str) -> Source | None:
        """What a source is made of.

        Parameters
        ----------
        code : str
            CUDA C++ of TVM's: helpers, declarations of kernels, and their definitions.

        Returns
        -------
        Source or None
            None where there is anything else in it.
        """
        starts = [match.start() for match in _KERNEL.finditer(code)]
        if not starts:
            return None
        kernels: dict[str, Kernel] = {}
        for begin, end in zip(starts, [*starts[1:], len(code)], strict=True):
            text = code[begin:end]
            head = re.split(r"[;{]", text, maxsplit=1)[0]
            rest = text[len(head) :].rstrip()
            name = _NAME.search(head)
            if name is None or not rest:
                return None
            if rest == ";":
                continue
            if name[1] in kernels or rest[0] != "{" or not _is_one_block(rest):
                return None
            kernels[name[1]] = Kernel(name[1], text.rstrip() + "\n")
        if not kernels:
            return None
        # Each kernel is compiled with them: seen from outside they would be defined many times.
        prelude = _SHARED_FUNCTION.sub("static ", code[: starts[0]])
        return cls(prelude, tuple(kernels.values()))

    def with_kernels(self, kernels: Sequence[Kernel]) -> str:
        """The text of a source with these kernels alone.

        Parameters
        ----------
        kernels : sequence of Kernel
            Of this one.
        """
        return self.prelude + "".join(kernel.code for kernel in kernels)


def _is_one_block(text: str) -> bool:
    """Whether a text is a block in braces, and nothing behind it."""
    depth = 0
    for place in re.finditer(r"[{}]", text):
        depth += 1 if place[0] == "{" else -1
        if depth == 0:
            return place.end() == len(text)
    return False


def entries(ptx: str) -> dict[str, str]:
    """PTX of one kernel alone, for each kernel of a PTX module.

    Parameters
    ----------
    ptx : str
        As nvcc writes it.

    Returns
    -------
    dict of str to str
        By the kernel's name; whatever else the module has is in each of them.

    Examples
    --------
    >>> body = "(\\n)\\n{\\n}\\n"
    >>> ptx = f".version 9.0\\n.visible .entry f{body}.visible .entry g{body}"
    >>> entries(ptx)["g"]
    '.version 9.0\\n.visible .entry g(\\n)\\n{\\n}\\n'
    """
    common = _COMMENT.sub("", _ENTRY.sub("", ptx))
    return {match[1]: common + match[0] for match in _ENTRY.finditer(ptx)}


def merged(modules: Sequence[str]) -> str | None:
    """One PTX module of all kernels of several.

    Parameters
    ----------
    modules : sequence of str
        From :func:`entries`, of one compiler and one architecture.

    Returns
    -------
    str or None
        None where they have something in common besides kernels, functions and variables.

    Examples
    --------
    >>> body = "(\\n)\\n{\\n}\\n"
    >>> ptx = f".version 9.0\\n.visible .entry f{body}.visible .entry g{body}"
    >>> merged(list(entries(ptx).values())) == ptx
    True
    """
    heads: dict[str, None] = {}
    items: dict[str, None] = {}
    kernels: list[str] = []
    for module in modules:
        common = _ENTRY.sub("", module)
        items.update((match[0].strip(), None) for match in _ITEM.finditer(common))
        heads[_ITEM.sub("", common).strip()] = None
        kernels += (match[0] for match in _ENTRY.finditer(module))
    if len(heads) != 1:
        return None
    return "\n".join([*heads, *items, "".join(kernels)])
