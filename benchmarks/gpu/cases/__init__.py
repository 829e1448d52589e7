"""Every CUDA backend's cases: what must compile without a GPU and be right on one.

Each backend has a module here with a function ``cases()``. The same list serves the test that
compiles and links them (``tests/backends_tests/test_cuda_cases.py``) and the check of their
numerics on a GPU (``benchmarks/gpu/numerics.py``).
"""

from __future__ import annotations

import functools
import importlib
from pathlib import Path

from benchmarks.gpu.cases._case import CudaCase

__all__ = ["CudaCase", "case_names", "case_of", "cases_of", "families"]


def families() -> list[str]:
    """Names of the modules with cases, one per backend."""
    names = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(name for name in names if not name.startswith("_"))


@functools.cache
def cases_of(family: str) -> dict[str, CudaCase]:
    """A family's cases by name.

    Parameters
    ----------
    family : str
        One of :func:`families`, or the full name of another module with a function ``cases``.

    Raises
    ------
    ValueError
        When two cases have the same name.
    """
    module = family if "." in family else f"{__name__}.{family}"
    cases = importlib.import_module(module).cases()
    by_name = {case.name: case for case in cases}
    if len(by_name) != len(cases):
        names = [case.name for case in cases]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"cases of '{family}' share a name: {', '.join(twice)}")
    return by_name


def case_names(family: str) -> list[str]:
    """Names of a family's cases, in its order."""
    return list(cases_of(family))


def case_of(family: str, name: str) -> CudaCase:
    """One case by its family and name."""
    return cases_of(family)[name]
