"""The end of the way: what a search returns, and how it is put together from what all stages found.

``result`` is what the user holds, ``assemble`` makes it and its report, ``sizes`` says how large a
library of several functions is.
"""

from collage.pipeline.results.result import LIBRARY, REPORT_HTML, Result
from collage.pipeline.results.sizes import sizes_remark

__all__ = ["LIBRARY", "REPORT_HTML", "Result", "sizes_remark"]
