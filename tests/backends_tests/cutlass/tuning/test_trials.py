"""Which configurations are tried: shared kernels for all that may use them, lonely ones seldom."""

from __future__ import annotations

from collections import Counter

import pytest

from collage.backends.cutlass.families.gemm.configurations import GemmConfiguration
from collage.backends.cutlass.question import Question
from collage.backends.cutlass.trials import FEW, GUESSES_IN_A_HURRY, SHARED_BY, trials
from tests.backends_tests.cutlass.tuning.test_tuning import LENGTHS, question

pytestmark = pytest.mark.cuda  # kernels are named by CUTLASS's headers


def many() -> list[Question]:
    return [question(m, 768, 768) for m in LENGTHS]


def _symbols(question: Question) -> list[str]:
    return [question.unit(c).symbol for c in question.configurations]


def test_of_few_specs_everything_is_tried() -> None:
    asked = many()[: FEW - 1]
    assert trials(asked, hurried=False) == {q: q.configurations for q in asked}


def test_of_many_specs_the_best_guess_and_shared_kernels_are_tried() -> None:
    asked = many()
    uses = Counter(symbol for q in asked for symbol in set(_symbols(q)))
    tried = trials(asked, hurried=False)
    left_out = 0
    for q in asked:
        assert tried[q][0] == q.configurations[0]
        for place, (configuration, symbol) in enumerate(
            zip(q.configurations, _symbols(q), strict=True)
        ):
            wanted = place == 0 or uses[symbol] >= SHARED_BY or configuration.is_quick
            assert (configuration in tried[q]) == wanted
            left_out += not wanted
    assert left_out


def test_in_a_hurry_of_what_compiles_slowly_best_guesses_alone_are_tried() -> None:
    asked = many()
    guesses = {_symbols(q)[0] for q in asked}
    tried = trials(asked, hurried=True)
    for q in asked:
        assert tried[q] == tuple(
            c
            for c, symbol in zip(q.configurations, _symbols(q), strict=True)
            if c.is_quick or symbol in guesses
        )
    # Each is tried wherever it may run; something is left out.
    assert any(len(some) > 1 for some in tried.values())
    assert any(len(tried[q]) < len(q.configurations) for q in asked)


def test_in_a_hurry_few_specs_have_a_second_guess() -> None:
    asked = question(3152, 770, 768)  # Rows that Hopper's bulk copies do not take.
    assert not any(c.is_quick for c in asked.configurations)
    assert trials([asked], hurried=True)[asked] == asked.configurations[:GUESSES_IN_A_HURRY]


def test_mirror_images_of_the_first_guess_come_last() -> None:
    first, *others = question(3152, 2304, 768).configurations
    assert isinstance(first, GemmConfiguration)
    rows, columns, _ = first.tile.shape
    assert rows != columns
    shapes = [c.tile.shape[:2] for c in others if isinstance(c, GemmConfiguration)]
    assert (columns, rows) not in shapes[:-1]
