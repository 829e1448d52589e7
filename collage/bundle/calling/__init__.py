"""Calls of a bundle's functions: which variant a call is for, arrays on the way in and out.

A :class:`BundleFunction` picks the variant (``dispatch``), pads, and runs it in one of the
:class:`Contexts`; ``tensors`` takes numpy's arrays and PyTorch's tensors without a copy where they
lie right.
"""

from collage.bundle.calling.contexts import Contexts
from collage.bundle.calling.function import BundleFunction
from collage.bundle.calling.random_inputs import random_array
from collage.bundle.calling.state import State
from collage.bundle.calling.tensors import as_torch

__all__ = [
    "BundleFunction",
    "Contexts",
    "State",
    "as_torch",
    "random_array",
]
