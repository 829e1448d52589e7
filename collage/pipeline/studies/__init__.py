"""What is found out about a model with the pipeline's stages, besides its fastest library.

``coverage`` says what each backend could take of it, before anything is built; ``stability`` runs
independent searches of it, and tells whether their answers differ and whether that matters.
"""

from collage.pipeline.studies.coverage import BackendCoverage, Coverage, OperatorGroup
from collage.pipeline.studies.stability import Flip, SearchAnswer, Stability

__all__ = [
    "BackendCoverage",
    "Coverage",
    "Flip",
    "OperatorGroup",
    "SearchAnswer",
    "Stability",
]
