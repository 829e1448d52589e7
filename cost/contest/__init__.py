"""How whole models that were timed in the same rounds are told apart; no device, no clock.

``interval`` is the statistics of paired ratios, ``rounds`` what was measured and which rounds do
not count, ``comparison`` what follows for each model, ``rules`` who plays the next round and when
it is over, ``play`` the course of it all, ``heats`` the same where memory has no room for everybody
at once; ``exchanges`` is the same for parts of models that add
up. Whoever times and whoever reads a log decide by the same
functions, so they decide alike.
"""

from collage.cost.contest.comparison import Outcome, PairedComparison, leader, paired_comparisons
from collage.cost.contest.exchanges import Exchange, ExchangeRounds, levelled
from collage.cost.contest.heats import Heat, InTime, joined, number_of_heats, who_fits
from collage.cost.contest.interval import Interval, median_interval
from collage.cost.contest.play import Played, play, shuffled
from collage.cost.contest.rounds import (
    Load,
    Rounds,
    Tolerance,
    disturbed_rounds,
    to_discard,
    without,
)
from collage.cost.contest.rules import ContestRule, FixedRounds, PairedRounds

__all__ = [
    "ContestRule",
    "Exchange",
    "ExchangeRounds",
    "FixedRounds",
    "Heat",
    "InTime",
    "Interval",
    "Load",
    "Outcome",
    "PairedComparison",
    "PairedRounds",
    "Played",
    "Rounds",
    "Tolerance",
    "disturbed_rounds",
    "joined",
    "leader",
    "levelled",
    "median_interval",
    "number_of_heats",
    "paired_comparisons",
    "play",
    "shuffled",
    "to_discard",
    "who_fits",
    "without",
]
