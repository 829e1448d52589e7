"""Whole recurrent layers."""

from __future__ import annotations

from collections.abc import Iterator

from collage.backends.contract import Match, PatternTriple, Verdict
from collage.backends.onednn.patterns._base import call_of, triple
from collage.backends.relax.recurrent import Recurrence
from collage.backends.relax.recurrent.layer import is_whole_layer, whole_layers


def recurrent() -> Iterator[PatternTriple]:
    """Triples of recurrent layers."""
    for name, chain in whole_layers():
        yield triple(f"recurrent{name}", chain, is_whole_layer, _sequences_to_the_end)


def _sequences_to_the_end(match: Match) -> Verdict:
    if Recurrence.of(call_of(match)).has_lengths:
        return Verdict.no("sequences end early, which oneDNN does not know")
    return Verdict.yes()
