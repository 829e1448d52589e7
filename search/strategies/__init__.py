"""Ways to choose among candidates, one a file.

:func:`search` is exact under additive cost and lazy about costs, over :func:`cheapest_cover`, one
round of it; :func:`exhaustive_search` tries everything, as an oracle. :func:`greedy` and
:func:`single_backend` need no costs; :func:`rivalries` are what an answer might be wrong about, and
:func:`other_covers` what might beat it whole.
:func:`refine` goes on from a partitioning by the times of
whole programs.
"""

from collage.search.strategies.cover import Cover, cheapest_cover
from collage.search.strategies.evolutionary import RefineProgress, refine
from collage.search.strategies.exhaustive import exhaustive_search
from collage.search.strategies.lazy_search import search
from collage.search.strategies.other_covers import OtherCover, other_covers
from collage.search.strategies.outcome import SearchProgress, SearchResult
from collage.search.strategies.rivals import Rivalry, rivalries
from collage.search.strategies.without_costs import greedy, single_backend

__all__ = [
    "Cover",
    "OtherCover",
    "RefineProgress",
    "Rivalry",
    "SearchProgress",
    "SearchResult",
    "cheapest_cover",
    "exhaustive_search",
    "greedy",
    "other_covers",
    "refine",
    "rivalries",
    "search",
    "single_backend",
]
