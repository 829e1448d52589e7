"""Partition rules: how candidates are found in a dataflow graph (the algebra of tvm-rfcs 0062).

A rule answers :meth:`~PartitionRule.find` with candidates and with the matches it had to turn down.
Rules are built from rules: :class:`UnionRule`, :class:`CombineRule`, :class:`OnlyValidRule` and
others take one and give one. :func:`default_rules` builds what a search uses.
"""

from collage.search.rules._base import Found, PartitionRule, Rejection
from collage.search.rules.combine import (
    CombineLimits,
    CombineRule,
    JoinAdjacent,
    JoinByKind,
    Joiner,
)
from collage.search.rules.composite import CompositeRule
from collage.search.rules.default import MatchRule, default_rules
from collage.search.rules.dfpattern import DFPatternRule
from collage.search.rules.filters.accepted import AcceptedRule
from collage.search.rules.filters.dominated import UndominatedRule
from collage.search.rules.filters.only_valid import OnlyValidRule
from collage.search.rules.filters.restricted import RestrictedRule
from collage.search.rules.fuse_ops import FuseOpsRule
from collage.search.rules.host import HostRule
from collage.search.rules.last_resort import LAST_RESORT, LastResortRule, last_resorts
from collage.search.rules.layouts import LAYOUTS, LayoutsRule, lifted
from collage.search.rules.op_kind import OpKindRule
from collage.search.rules.regions import RegionLimits, RegionsRule
from collage.search.rules.union import UnionRule

__all__ = [
    "LAST_RESORT",
    "LAYOUTS",
    "AcceptedRule",
    "CombineLimits",
    "CombineRule",
    "CompositeRule",
    "DFPatternRule",
    "Found",
    "FuseOpsRule",
    "HostRule",
    "JoinAdjacent",
    "JoinByKind",
    "Joiner",
    "LastResortRule",
    "LayoutsRule",
    "MatchRule",
    "OnlyValidRule",
    "OpKindRule",
    "PartitionRule",
    "RegionLimits",
    "RegionsRule",
    "Rejection",
    "RestrictedRule",
    "UndominatedRule",
    "UnionRule",
    "default_rules",
    "last_resorts",
    "lifted",
]
