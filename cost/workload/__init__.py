"""What is measured: a candidate's module without its names and weights.

A :class:`Workload` is canonical, so that equal candidates are measured once; a :class:`DataSpec`
describes weights well enough to make others like them. The rest is how a module becomes canonical,
what its inputs must be (``index_bounds``), how it is described, and how arrays and modules are kept
in files.
"""

from collage.backends.relax.tensor_spec import TensorSpec
from collage.cost.workload.data import DataSpec
from collage.cost.workload.workload import Workload

__all__ = ["DataSpec", "TensorSpec", "Workload"]
