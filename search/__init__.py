"""Partition search: candidates of a dataflow graph in, the cheapest cover out.

Nothing here knows how a cost is found. :class:`DataflowGraph` numbers the bindings of a function,
:mod:`~collage.search.rules` propose candidates, and a strategy chooses among them:

- :func:`search`: exact under additive cost, and asks for no more costs than it needs;
- :func:`greedy` and :func:`single_backend`: what is had without any cost;
- :func:`refine`: betters a partitioning by the end-to-end times of whole programs;
- :func:`exhaustive_search`: all covers of a small graph, as an oracle for tests.

Costs come through the protocol :class:`CandidateCosts`. Whatever makes a :class:`Partitioning` has
it checked by :func:`validate`.
"""

from collage.search.candidates import Candidate, Composite
from collage.search.costs import CandidateCosts, TableCosts
from collage.search.dataflow import DataflowGraph, OpKind, bits
from collage.search.partitioning import Partitioning, make_partitioning, validate
from collage.search.rules import PartitionRule, default_rules
from collage.search.strategies import (
    Cover,
    RefineProgress,
    SearchProgress,
    SearchResult,
    cheapest_cover,
    exhaustive_search,
    greedy,
    refine,
    search,
    single_backend,
)
from collage.search.subgraph import SubGraph, SubGraphLimits

__all__ = [
    "Candidate",
    "CandidateCosts",
    "Composite",
    "Cover",
    "DataflowGraph",
    "OpKind",
    "PartitionRule",
    "Partitioning",
    "RefineProgress",
    "SearchProgress",
    "SearchResult",
    "SubGraph",
    "SubGraphLimits",
    "TableCosts",
    "bits",
    "cheapest_cover",
    "default_rules",
    "exhaustive_search",
    "greedy",
    "make_partitioning",
    "refine",
    "search",
    "single_backend",
    "validate",
]
