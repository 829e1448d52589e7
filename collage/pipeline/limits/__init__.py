"""What ends a search early: a budget that is spent, or Ctrl-C; and that there is an answer then.

``budget`` shares out the time, ``answer_in_hand`` sees to it that there is something to return
early on, ``interrupts`` hears of Ctrl-C, and ``own_threads`` leaves cores to whom one waits for.
"""

from collage.pipeline.limits.answer_in_hand import AnswerInHand
from collage.pipeline.limits.budget import Budget
from collage.pipeline.limits.interrupts import answering
from collage.pipeline.limits.own_threads import few_own_threads

__all__ = ["AnswerInHand", "Budget", "answering", "few_own_threads"]
