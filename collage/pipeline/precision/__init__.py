"""Fewer digits where an error is allowed: who offers them, what they do, and where they pay.

:func:`in_precisions` adds the targets that compute with fewer digits, an :class:`ErrorModel` says
what each candidate does to the outputs, and ``contenders`` has the search look for the fastest
partitionings between time and error (``frontier``).
"""

from collage.pipeline.precision.error_model import ErrorModel
from collage.pipeline.precision.targets import checked_error, in_precisions

__all__ = ["ErrorModel", "checked_error", "in_precisions"]
