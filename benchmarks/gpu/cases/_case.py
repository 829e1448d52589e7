"""One case of a CUDA backend: a module, and the pattern that must take all of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm


@dataclass(frozen=True)
class CudaCase:
    """What must compile without a GPU, and be right on one.

    Attributes
    ----------
    name : str
        Unique, for example ``matmul_bias_gelu-float16-128x768x3072``.
    backend : str
    pattern : str
        The triple that must match, for example ``cublas.matmul_bias_gelu``; empty for any or none.
    given : tvm.IRModule or callable
        The module; or what makes it, where its weights are large: whoever looks for a case's name
        has all cases.
    options : mapping of str to Any
        The target's attributes.
    rtol : float
        Largest difference to a float64 reference, relative to the largest value.
    arch : str
        What to compile for where it cannot be Hopper; empty for Hopper.
    """

    name: str
    backend: str
    pattern: str
    given: tvm.IRModule | Callable[[], tvm.IRModule]
    options: Mapping[str, Any] = field(default_factory=dict)
    rtol: float = 5e-3
    arch: str = ""

    @functools.cached_property
    def module(self) -> tvm.IRModule:
        """Canonical: ``main`` with one dataflow block, seeded weights as inline constants."""
        return self.given if isinstance(self.given, tvm.IRModule) else self.given()
