"""CUDA sources as TVM writes them, and the PTX that comes of them, taken apart into kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_KERNEL = re.compile(r'^extern "C" __global__ ', re.MULTILINE)
_NAME = re.compile(r"(\w+)\s*\([^()]*\)\s*$")
_SHARED_FUNCTION = re.compile(r"^(?=(?:__host__ )?__device__ )", re.MULTILINE)
_ENTRY = re.compile(r"^[ \t]*\.visible \.entry (\w+)\(", re.MULTILINE)
_FUNCTION = re.compile(r"^[ \t]*(?:\.\w+ )*\.func\b", re.MULTILINE)
_VARIABLE = re.compile(r"^[ \t]*(?:\.\w+ )*\.(?:global|const|shared)\b[^;]*;", re.MULTILINE)
_NO_DEFINITION = re.compile(r"[^;{]*;")
_BRACE = re.compile(r"[{}]")
_COMMENT = re.compile(r"^[ \t]*//.*\n|^[ \t]*\n", re.MULTILINE)


_NO_NUMBERS = {"inff": "__int_as_float(0x7f800000)", "nanf": "__int_as_float(0x7fc00000)"}
_NO_NUMBER = re.compile(r"\b(?:inff|nanf)\b(?! *\()")


def with_infinities(code: str) -> str:
    """The source with what TVM means by infinities and NaNs of bfloat16, which it spells as C does
    numbers.

    Parameters
    ----------
    code : str
        As TVM writes it.

    Returns
    -------
    str
        The same with CUDA's own.

    Examples
    --------
    >>> with_infinities("x[0] = __float2bfloat16_rn(-inff);")
    'x[0] = __float2bfloat16_rn(-__int_as_float(0x7f800000));'
    """
    return _NO_NUMBER.sub(lambda found: _NO_NUMBERS[found[0]], code)


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
    return _end_of_block(text, 0) == len(text)


def _end_of_block(text: str, begin: int) -> int:
    """Where the block ends whose first brace is the next one; 0 for one without an end.

    Blocks are inside it at the beginning of a line, too: those of assembly that is written inline.
    """
    depth = 0
    for place in _BRACE.finditer(text, begin):
        depth += 1 if place[0] == "{" else -1
        if depth == 0:
            return place.end()
    return 0


def _taken_out(text: str, head: re.Pattern[str]) -> tuple[str, list[tuple[str, str]]]:
    """A PTX module without what begins with some head, and that: each with its head's name."""
    left, found, done = [], [], 0
    while (match := head.search(text, done)) is not None:
        after = _NO_DEFINITION.match(text, match.end())
        end = after.end() if after is not None else _end_of_block(text, match.end())
        end = end or len(text)
        end += text[end : end + 1] == "\n"
        left.append(text[done : match.start()])
        found.append((match[match.lastindex or 0], text[match.start() : end]))
        done = end
    return "".join([*left, text[done:]]), found


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
    common, kernels = _taken_out(ptx, _ENTRY)
    common = _COMMENT.sub("", common)
    return {name: common + kernel for name, kernel in kernels}


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
        common, found = _taken_out(module, _ENTRY)
        kernels += (kernel for _, kernel in found)
        common, functions = _taken_out(common, _FUNCTION)
        items.update((function.strip(), None) for _, function in functions)
        items.update((match[0].strip(), None) for match in _VARIABLE.finditer(common))
        heads[_VARIABLE.sub("", common).strip()] = None
    if len(heads) != 1:
        return None
    return "\n".join([*heads, *items, "".join(kernels)])
