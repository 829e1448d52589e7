"""Every CUDA backend's cases: what must compile without a GPU and be right on one.

Each backend has a folder here, and in it modules with a function ``cases()``: a family each. The
same list serves the test that compiles and links them (``tests/backends_tests/test_cuda_cases.py``)
and the check of their numerics on a GPU (``benchmarks/gpu/numerics.py``).
"""

from __future__ import annotations

import functools
import importlib
from pathlib import Path

from benchmarks.gpu.cases._case import CudaCase

_HERE = Path(__file__).parent

__all__ = ["CudaCase", "case_names", "case_of", "cases_of", "families"]


def families() -> list[str]:
    """Names of the families: ``cudnn`` is ``cudnn/cases.py``, ``cudnn_conv`` ``cudnn/conv.py``."""
    return sorted(_modules())


def _modules() -> dict[str, str]:
    """The module of each family; one whose name begins with an underscore has none."""
    places = [(path.parent.name, path.stem) for path in _HERE.glob("*/[!_]*.py")]
    return {
        backend if stem == "cases" else f"{backend}_{stem}": f"{__name__}.{backend}.{stem}"
        for backend, stem in places
    }


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
        When there is no such family, or two of its cases have the same name.
    """
    module = family if "." in family else _modules().get(family)
    if module is None:
        raise ValueError(f"no family '{family}'; there are: {', '.join(families())}")
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
