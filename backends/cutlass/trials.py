"""Which configurations of each spec are compiled to be timed.

A kernel takes all extents at run time. One that many specs of a model may use costs each of them
little; one that a single spec may use costs as much as any other: 20 to 60 s of a core where
CUTLASS's templates are instantiated. Convolutions, of which a network has dozens, lose nothing
without the lonely ones: those of ResNet-50 (batch 16, H100) were 0.1 % slower in sum with 23
kernels than with 37, MobileNet-V2's no slower with 21 than with 30. The few products of a
transformer share little, and lose up to 9 %: of a family with few specs everything is tried, as is
whatever is compiled in seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from collage.backends.cutlass.families import Configuration
from collage.backends.cutlass.question import Question

FEW = 8
"""Specs of one family below which kernels are seldom shared."""
SHARED_BY = 3
"""Specs that a kernel has to be for, in a family of more."""
GUESSES_IN_A_HURRY = 2
"""Of a family with few specs: 14 products took 9 % longer in sum with the best of two than with the
best of all."""


def trials(
    questions: Sequence[Question], *, hurried: bool
) -> dict[Question, tuple[Configuration, ...]]:
    """The configurations to be tried first, for each question.

    Parameters
    ----------
    questions : sequence of Question
        All that are asked at once, each once.
    hurried : bool
        Where there is little time: what is compiled in seconds, and of the rest, in a family with
        many specs, only the kernels that are some spec's best guess, for every spec that they may
        run (best of these against the best of all:
        1.0 % in sum over 90 convolutions of an H200, with 18 kernels instead of 43).

    Returns
    -------
    dict[Question, tuple[Configuration, ...]]
        The best guess and others, in the order of the question.
    """
    families = Counter(question.spec.operator for question in questions)
    units = {q: [q.unit(c).symbol for c in q.configurations] for q in questions}
    uses = Counter(symbol for symbols in units.values() for symbol in dict.fromkeys(symbols))
    guessed = {symbols[0] for symbols in units.values()}

    def is_tried(question: Question, place: int) -> bool:
        symbol = units[question][place]
        if question.configurations[place].is_quick:
            return True
        few = families[question.spec.operator] < FEW
        if hurried:
            return symbol in guessed or (few and place < GUESSES_IN_A_HURRY)
        return few or place == 0 or uses[symbol] >= SHARED_BY

    return {
        q: tuple(c for place, c in enumerate(q.configurations) if is_tried(q, place))
        for q in questions
    }
