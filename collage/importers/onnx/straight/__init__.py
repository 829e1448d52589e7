"""If, Loop and Scan as straight lines, or why there is none.

``control_flow`` writes bodies out, ``scanned`` reads what a Scan goes over, and ``refusals`` are
what neither is done for.
"""

from collage.importers.onnx.straight.control_flow import flatten
from collage.importers.onnx.straight.refusals import DataDecideError

__all__ = ["DataDecideError", "flatten"]
