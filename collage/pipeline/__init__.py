"""The stages of :func:`collage.optimize`, in the order that a model goes through them.

``session`` opens targets, log and folders; ``imported`` makes the model a canonical module and its
graph; ``prepared`` runs the passes that backends bring; ``costing`` decides, once, who says what
things cost; ``covers`` finds candidates and chooses partitionings among them; ``evaluated``
compares these end to end and refines the best; ``results`` puts together what came out.
``prefetch`` compiles in the background, meanwhile, what libraries need whatever the model is;
``precompile`` does that alone, ahead of a machine's first search.
``inputs`` has what models are run on, ``limits`` what ends a search early. Each stage takes and
gives typed values and can be run alone; ``optimize`` is their sequence. ``studies`` ask other
questions of the same stages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collage._on_demand import on_demand

if TYPE_CHECKING:
    from collage.pipeline.candidates import find_candidates
    from collage.pipeline.costing import Costing, EstimatedCosting, MeasuredCosting, choose_costing
    from collage.pipeline.covers import Covers, find_covers, seeds_of
    from collage.pipeline.evaluated import (
        Evaluated,
        by_promise,
        evaluate_contenders,
        evaluate_in_time,
    )
    from collage.pipeline.imported import Imported, import_model
    from collage.pipeline.improving.refined import refine_winner
    from collage.pipeline.limits import AnswerInHand, Budget
    from collage.pipeline.prepared import prepare_module
    from collage.pipeline.results.result import Result
    from collage.pipeline.session import Session, open_session

__all__ = [
    "AnswerInHand",
    "Budget",
    "Costing",
    "Covers",
    "EstimatedCosting",
    "Evaluated",
    "Imported",
    "MeasuredCosting",
    "Result",
    "Session",
    "by_promise",
    "choose_costing",
    "evaluate_contenders",
    "evaluate_in_time",
    "find_candidates",
    "find_covers",
    "import_model",
    "open_session",
    "prepare_module",
    "refine_winner",
    "seeds_of",
]

# On demand: to import all stages takes seconds, which belong to a call's budget.
__getattr__, __dir__ = on_demand(
    __name__,
    {
        "candidates": ("find_candidates",),
        "costing": (
            "Costing",
            "EstimatedCosting",
            "MeasuredCosting",
            "choose_costing",
        ),
        "covers": (
            "Covers",
            "find_covers",
            "seeds_of",
        ),
        "evaluated": (
            "Evaluated",
            "by_promise",
            "evaluate_contenders",
            "evaluate_in_time",
        ),
        "imported": (
            "Imported",
            "import_model",
        ),
        "improving.refined": ("refine_winner",),
        "limits": (
            "AnswerInHand",
            "Budget",
        ),
        "prepared": ("prepare_module",),
        "results.result": ("Result",),
        "session": (
            "Session",
            "open_session",
        ),
    },
)
